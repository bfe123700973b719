//! Calls about bookings and holds, and a look at all calendars at once: in memory, in the index and on disk.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot::Receiver;

use super::super::message::{DeskMessage, Findings, Leftovers, Said};
use super::lab::{Lab, reply, resource, said};
use crate::admission::calendar::Calendar;
use crate::model::{
    Asker, Booking, BookingFilter, BookingId, BookingMode, BookingPolicy, BookingStatus, Code, HoldId, HoldStatus,
    Rebooking, Repeat, ResourceSpec, Role, Slot, SlotLength, TokenHash, Window,
};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall, HoldSeen};

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const ADVISORY: BookingPolicy =
    BookingPolicy { mode: BookingMode::Advisory, auto_acquire: false, no_show_after: None };
pub(super) const ENFORCED: BookingPolicy = BookingPolicy { mode: BookingMode::Enforced, ..ADVISORY };
pub(super) const AUTO_ACQUIRE: BookingPolicy = BookingPolicy { auto_acquire: true, ..ADVISORY };

pub(super) type Answer = Receiver<Said<CalendarAnswer>>;

/// The start of every lab, and minutes after it.
pub(super) fn minute(minutes: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start.checked_add(jiff::SignedDuration::from_mins(minutes)).unwrap()
}

/// From one minute up to another.
pub(super) fn slot(from: i64, to: i64) -> Slot {
    Slot { starts_at: minute(from), length: SlotLength::Until(minute(to)) }
}

/// A resource whose bookings mean that.
pub(super) fn booked(id: &str, labels: &str, bookings: BookingPolicy) -> ResourceSpec {
    ResourceSpec { bookings, ..resource(id, labels, 1) }
}

pub(super) fn agent(name: &str) -> Asker {
    Asker { requester: name.parse().unwrap(), role: Role::Agent }
}

pub(super) fn admin() -> Asker {
    Asker { role: Role::Admin, ..agent("admin") }
}

/// Everybody's token is their name.
pub(super) fn token(name: &str) -> TokenHash {
    TokenHash::of(name)
}

pub(super) fn holds(resource: &str, slot: Slot, ttl: Duration, key: Option<&str>, token: TokenHash) -> CalendarAsk {
    CalendarAsk::Hold {
        resource: resource.parse().unwrap(),
        slot,
        ttl_ms: Some(u64::try_from(ttl.as_millis()).unwrap()),
        key: key.map(|key| key.parse().unwrap()),
        token,
    }
}

pub(super) fn books(resource: &str, slot: Slot, repeat: Option<Repeat>) -> CalendarAsk {
    CalendarAsk::Book { resource: resource.parse().unwrap(), slot, repeat, note: None }
}

pub(super) fn one_hold(answer: CalendarAnswer) -> HoldSeen {
    if let CalendarAnswer::Hold(hold) = answer { hold } else { panic!("no hold: {answer:?}") }
}

pub(super) fn one_booking(answer: CalendarAnswer) -> Arc<Booking> {
    match answer {
        CalendarAnswer::Booking(booking) | CalendarAnswer::Cancelled { booking, .. } => booking,
        CalendarAnswer::Booked { bookings, .. } => bookings[0].clone(),
        other => panic!("no booking: {other:?}"),
    }
}

impl Lab {
    pub(super) fn call(&self, asker: Asker, ask: CalendarAsk) -> Answer {
        self.send(|reply| DeskMessage::Calendar(Box::new(CalendarCall { asker, ask }), reply))
    }

    pub(super) fn begin_book(&self, who: &str, resource: &str, slot: Slot) -> Answer {
        self.call(agent(who), books(resource, slot, None))
    }

    pub(super) async fn book(&self, who: &str, resource: &str, slot: Slot) -> Result<Arc<Booking>, Code> {
        said(self.begin_book(who, resource, slot)).await.map(one_booking)
    }

    pub(super) fn begin_hold(&self, who: &str, resource: &str, slot: Slot, ttl: Duration) -> Answer {
        self.call(agent(who), holds(resource, slot, ttl, None, token(who)))
    }

    pub(super) async fn hold(&self, who: &str, resource: &str, slot: Slot, ttl: Duration) -> Result<HoldSeen, Code> {
        said(self.begin_hold(who, resource, slot, ttl)).await.map(one_hold)
    }

    pub(super) fn begin_confirm(&self, who: &str, hold: &HoldId) -> Answer {
        self.call(agent(who), CalendarAsk::Confirm { hold: hold.clone(), token: token(who), note: None })
    }

    pub(super) async fn confirm(&self, who: &str, hold: &HoldId) -> Result<Arc<Booking>, Code> {
        said(self.begin_confirm(who, hold)).await.map(one_booking)
    }

    pub(super) fn begin_give_back(&self, who: &str, hold: &HoldId) -> Answer {
        self.call(agent(who), CalendarAsk::Release { hold: hold.clone(), token: Some(token(who)) })
    }

    pub(super) async fn give_back(&self, who: &str, hold: &HoldId) -> Result<HoldSeen, Code> {
        said(self.begin_give_back(who, hold)).await.map(one_hold)
    }

    pub(super) fn begin_move(&self, who: &str, booking: &BookingId, to: Slot) -> Answer {
        let to = Rebooking { starts_at: Some(to.starts_at), length: Some(to.length) };
        self.call(agent(who), CalendarAsk::Reschedule { booking: booking.clone(), to })
    }

    pub(super) async fn move_to(&self, who: &str, booking: &BookingId, to: Slot) -> Result<Arc<Booking>, Code> {
        said(self.begin_move(who, booking, to)).await.map(one_booking)
    }

    pub(super) fn begin_give_up(&self, who: &str, booking: &BookingId) -> Answer {
        self.call(agent(who), CalendarAsk::Cancel { booking: booking.clone(), following: false })
    }

    pub(super) async fn give_up(&self, who: &str, booking: &BookingId) -> Result<Arc<Booking>, Code> {
        said(self.begin_give_up(who, booking)).await.map(one_booking)
    }

    /// A booking as it is now.
    pub(super) async fn booking(&self, id: &BookingId) -> Arc<Booking> {
        one_booking(said(self.call(admin(), CalendarAsk::Booking(id.clone()))).await.unwrap())
    }

    pub(super) async fn status(&self, id: &BookingId) -> BookingStatus {
        self.booking(id).await.status
    }

    /// A hold as it is now.
    pub(super) async fn one_hold(&self, id: &HoldId) -> Result<HoldSeen, Code> {
        said(self.call(admin(), CalendarAsk::OneHold(id.clone()))).await.map(one_hold)
    }

    /// The windows of everything that is scheduled on a resource.
    pub(super) async fn scheduled(&self, resource: &str) -> Vec<Window> {
        let resource = Some(resource.parse().unwrap());
        let filter = BookingFilter { status: Some(BookingStatus::Scheduled), ..BookingFilter::default() };
        let page = said(self.call(admin(), CalendarAsk::Bookings { resource, filter, limit: 500 })).await.unwrap();
        match page {
            CalendarAnswer::Bookings { bookings, .. } => bookings.iter().map(|booking| booking.window).collect(),
            other => panic!("no bookings: {other:?}"),
        }
    }

    pub(super) async fn check(&self) -> Findings {
        reply(self.send(DeskMessage::Check)).await.unwrap()
    }

    pub(super) async fn complaints(&self) -> Vec<String> {
        reply(self.send(DeskMessage::Complaints)).await
    }

    pub(super) fn begin_pause(&self, resource: Option<&str>, paused: bool) -> Answer {
        let resource = resource.map(|resource| resource.parse().unwrap());
        self.call(admin(), CalendarAsk::PauseHolds { resource, paused })
    }

    pub(super) async fn pause(&self, resource: Option<&str>, paused: bool) -> Result<CalendarAnswer, Code> {
        said(self.begin_pause(resource, paused)).await
    }

    /// Nothing is under way, no two claims of a resource overlap, the index says what the calendars say, and so does the
    /// disk.
    pub(super) async fn is_sound(&self) {
        self.settle().await;
        assert_eq!(self.leftovers().await, Leftovers::default());
        self.agrees().await;
    }

    /// No two claims of a resource overlap, whatever is under way.
    pub(super) async fn agrees_now(&self) {
        let (calendars, _) = reply(self.send(DeskMessage::Calendars)).await;
        claims_of(&calendars);
        assert_eq!(self.check().await.violations, [""; 0]);
    }

    /// The same, and the index and the disk say it too. Leases and waiters may be there.
    pub(super) async fn agrees(&self) {
        let (calendars, indexed) = reply(self.send(DeskMessage::Calendars)).await;
        assert!(indexed, "the index says something else than the calendars");
        let mut known = claims_of(&calendars);
        let database = self.database();
        let select = "SELECT id, status, starts_at, ends_at, claims FROM booking \
                      UNION ALL SELECT id, status, starts_at, ends_at, status = 'active' FROM hold";
        let mut statement = database.prepare(select).unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, row.get::<_, bool>(4)?))
        };
        let mut stored: Vec<(String, String, i64, i64, bool)> =
            statement.query_map([], row).unwrap().map(Result::unwrap).collect();
        known.sort();
        stored.sort();
        assert_eq!(known, stored, "memory, and disk");
        assert_eq!(self.check().await.violations, [""; 0]);
    }
}

/// Everything in these calendars, with its status, its window in microseconds, and whether it claims it.
fn claims_of(calendars: &[Calendar]) -> Vec<(String, String, i64, i64, bool)> {
    let mut known = Vec::new();
    for calendar in calendars {
        let bookings = calendar.bookings().map(|it| (it.id.to_string(), it.status.as_str(), it.window, it.claims));
        let active = |status| status == HoldStatus::Active;
        let holds = calendar.holds().map(|it| &it.hold);
        let holds = holds.map(|it| (it.id.to_string(), it.status.as_str(), it.window, active(it.status)));
        let all: Vec<_> = bookings.chain(holds).collect();
        let mut claims: Vec<Window> = all.iter().filter(|(.., claims)| *claims).map(|(_, _, it, _)| *it).collect();
        claims.sort();
        assert!(claims.windows(2).all(|two| !two[0].overlaps(&two[1])), "a slot is claimed twice: {claims:?}");
        known.extend(all.into_iter().map(|(id, status, window, claims)| {
            let (from, to) = window.into();
            (id, status.to_owned(), from, to, claims)
        }));
    }
    known
}
