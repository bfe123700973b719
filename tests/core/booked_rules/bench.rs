//! A bench with bookings, on which people ask for leases by hand.

use std::time::Duration;

use berth::admission::Speaker;
use berth::admission::calendar::CalendarCommand;
use berth::admission::resource::{Change, Command, Decision, Held, Otherwise, Reply, ResourceState};
use berth::clock::Now;
use berth::model::{
    Authority, Booking, BookingMode, BookingPolicy, BookingStatus, Caller, Code, LeftOut, Refusal, Role, Slot,
    SlotLength, WaitPolicy,
};

use crate::calendar_rules::diary::booking;
use crate::resource_rules::device::{Device, waiter};
use crate::sample::{at, text, wall};

pub const ADVISORY: BookingPolicy =
    BookingPolicy { mode: BookingMode::Advisory, auto_acquire: false, no_show_after: None };
pub const ENFORCED: BookingPolicy = BookingPolicy { mode: BookingMode::Enforced, ..ADVISORY };
pub const ACQUIRED: BookingPolicy = BookingPolicy { auto_acquire: true, ..ENFORCED };
pub const LOOSELY_ACQUIRED: BookingPolicy = BookingPolicy { auto_acquire: true, ..ADVISORY };
pub const NO_SHOW: BookingPolicy = BookingPolicy { no_show_after: Some(Duration::from_secs(15 * 60)), ..ENFORCED };

/// Minutes after the tests' common beginning.
pub fn min(minutes: u64) -> Now {
    at(minutes * 60_000)
}

pub fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// A free device with that policy, as it is after a start.
pub fn device(policy: BookingPolicy) -> Device {
    let mut device = Device::new(1);
    device.spec.bookings = policy;
    device.state = ResourceState { free_since: Some(wall(0)), ..ResourceState::default() };
    device
}

/// The same with a booking of Ruth's from minute 60 to 120.
pub fn booked(policy: BookingPolicy) -> Device {
    let mut device = device(policy);
    book(&mut device, 1, "ruth", 60, 120, min(0));
    device
}

pub fn book(device: &mut Device, number: usize, holder: &str, from: u64, to: u64, now: Now) {
    let slot = Slot { starts_at: min(from).wall, length: SlotLength::Until(min(to).wall) };
    let windows = vec![(booking(number), slot)];
    let command = CalendarCommand::Book { holder: text(holder), windows, series: None, note: None };
    let reply = device.take(Command::Calendar(command), now).reply;
    assert!(matches!(reply, Reply::Calendar(_)), "{reply:?}");
}

/// Somebody asks for so many minutes, and is refused where that cannot be.
pub fn ask(number: usize, holder: &str, ttl: Duration, now: Now) -> Command {
    let mut waiter = Box::new(waiter(number, holder, now));
    waiter.proposal.ttl = ttl;
    let otherwise = Otherwise::Refuse(WaitPolicy::NoWait);
    Command::Ask { waiter, otherwise, left_out: LeftOut::default(), speaker: Speaker::Requester }
}

/// The same, ready to wait.
pub fn wait(number: usize, holder: &str, ttl: Duration, now: Now) -> Command {
    with(ask(number, holder, ttl, now), |_, otherwise| *otherwise = Otherwise::Wait(WaitPolicy::Wait { timeout: None }))
}

/// The same, rather shorter than not at all.
pub fn shorter(command: Command) -> Command {
    with(command, |waiter, _| waiter.proposal.allow_shorter = true)
}

/// The same by an admin.
pub fn by_admin(command: Command) -> Command {
    with(command, |waiter, _| waiter.proposal.by_admin = true)
}

fn with(mut command: Command, change: impl Fn(&mut berth::admission::Waiter, &mut Otherwise)) -> Command {
    if let Command::Ask { waiter, otherwise, .. } = &mut command {
        change(waiter, otherwise);
    }
    command
}

pub fn renew(held: &Held, ttl: Duration, allow_shorter: bool) -> Command {
    let authority = Authority::Client(Caller { principal: held.lease.holder.principal.clone(), role: Role::Agent });
    Command::Renew { lease: held.lease.id.clone(), fence: None, ttl: Some(ttl), allow_shorter, authority }
}

pub fn granted(decision: Decision) -> Held {
    match decision.reply {
        Reply::Granted(held) | Reply::Renewed(held, _) => held,
        other => panic!("{other:?}"),
    }
}

/// The refusal `RESOURCE_BOOKED`, and for how many milliseconds it could be had.
pub fn stopped(decision: Decision) -> (Refusal, u64) {
    match decision.reply {
        Reply::Refused(refusal) => {
            assert_eq!(refusal.code, Code::ResourceBooked, "{refusal:?}");
            let ms = refusal.details.as_ref().unwrap()["availableForMs"].as_u64().unwrap();
            (refusal, ms)
        }
        other => panic!("{other:?}"),
    }
}

pub fn the_booking(device: &Device, number: usize) -> &Booking {
    device.state.calendar.booking(&booking(number)).expect("it is there")
}

pub fn status(device: &Device, number: usize) -> BookingStatus {
    the_booking(device, number).status
}

/// What happened, in the words of the events.
pub fn events(device: &Device, changes: &[Change], now: Now) -> Vec<&'static str> {
    let events = changes.iter().filter_map(|it| berth::admission::history::event_of(it, Some(&device.spec.id), now));
    events.map(|event| event.kind.as_str()).collect()
}
