//! What is true of every decision about a resource with bookings: one function for each sentence.

use std::time::Duration;

use berth::admission::Waiter;
use berth::admission::calendar::{BookingMove, Calendar, CalendarChange, CalendarReply, Miss};
use berth::admission::resource::{Around, Change, Command, Decision, Otherwise, Reply, ResourceState, apply, decide};
use berth::clock::Now;
use berth::model::time::{remaining, whole};
use berth::model::{Booking, BookingMode, BookingPolicy, BookingStatus, Code, LeaseRecord, Proposal, Requester};
use jiff::Timestamp;

use super::steps::taken_from;

/// One decision, and what it makes of the resource.
pub struct Happened<'a> {
    pub before: &'a ResourceState,
    pub around: &'a Around<'a>,
    pub command: &'a Command,
    pub decision: &'a Decision,
    /// What each change meets, and at the end what all of them come to.
    states: Vec<ResourceState>,
    /// Since when the resource was free, before the decision.
    pub free_since: Option<Timestamp>,
}

impl<'a> Happened<'a> {
    pub fn new(
        before: &'a ResourceState,
        around: &'a Around<'a>,
        command: &'a Command,
        decision: &'a Decision,
        free_since: Option<Timestamp>,
    ) -> Self {
        let mut states = vec![before.clone()];
        for change in &decision.changes {
            let mut after = states[states.len() - 1].clone();
            apply(&mut after, change.clone());
            states.push(after);
        }
        Self { before, around, command, decision, states, free_since }
    }

    pub fn after(&self) -> &ResourceState {
        self.states.last().expect("the one before")
    }

    /// Since when the resource is free, after each change.
    pub fn free_since(&self) -> Vec<Option<Timestamp>> {
        let mut since = self.free_since;
        let each = self.states[1..].iter().map(|state| {
            let is_free = state.held.is_empty() && !state.drained;
            since = since.or(Some(self.now().wall)).filter(|_| is_free);
            since
        });
        each.collect()
    }

    pub fn check(&self) {
        let invariants = [
            a_lease_keeps_out_of_the_windows_of_others,
            a_lease_is_cut_only_as_far_as_need_be_and_says_so,
            a_renew_is_never_shorter_than_it_was_for_a_booking,
            who_fits_is_granted_and_who_does_not_hears_what_would,
            a_refused_renew_hears_what_would_fit,
            nobody_who_fits_waits,
            the_booker_has_its_lease_until_the_end,
            a_booking_is_fulfilled_inside_its_window_by_a_lease_of_its_holder,
            a_booking_is_missed_only_for_a_reason,
            a_window_is_freed_only_with_its_lease,
            nothing_is_kept_in_the_window_of_another,
            an_advisory_calendar_does_nothing_to_leases,
            the_answer_is_what_is_there,
            time_alone_does_nothing_before_it_said,
        ];
        invariants.iter().for_each(|holds| holds(self));
        bookings_are_settled(self.after(), self.around);
        crate::calendar_rules::invariants::nothing_overlaps(&self.after().calendar);
    }

    fn policy(&self) -> BookingPolicy {
        self.around.spec.bookings
    }

    fn now(&self) -> Now {
        self.around.now
    }

    /// Each change with the state that it meets.
    fn replay(&self, mut visit: impl FnMut(&ResourceState, &Change)) {
        self.states.iter().zip(&self.decision.changes).for_each(|(state, change)| visit(state, change));
    }

    /// The state that the command itself meets.
    fn met(&self) -> &ResourceState {
        &self.states[self.decision.command_from]
    }

    /// How long `holder` may have the resource; none for as long as it likes.
    fn left(&self, state: &ResourceState, holder: &Requester, by_admin: bool) -> Option<Duration> {
        left(self.policy(), state, holder, by_admin, self.now().wall)
    }

    /// True when the node itself grants this lease, to the holder of a booking.
    fn is_acquired(&self, lease: &LeaseRecord) -> bool {
        self.around.fresh.is_some_and(|fresh| fresh.lease == lease.id) || self.is_awaited(lease)
    }

    /// True when its holder has waited for it in the window that it has booked.
    fn is_awaited(&self, lease: &LeaseRecord) -> bool {
        let now = self.now().wall;
        let waits = self.states[0].queue.get(&lease.request_id).is_some();
        let mut met = self.states.iter().zip(&self.decision.changes);
        let granted = met.find(|(_, change)| matches!(change, Change::Granted { lease: it, .. } if it.id == lease.id));
        let booking = granted
            .and_then(|(state, _)| open_now(&state.calendar, now))
            .filter(|booking| booking.holder == lease.holder);
        self.policy().auto_acquire
            && waits
            && booking.is_some_and(|it| lease.ttl == whole(remaining(now, it.window.ends_at())))
    }

    /// What somebody asked for who is granted a lease by hand.
    fn proposal<'b>(&'b self, state: &'b ResourceState, lease: &LeaseRecord) -> &'b Proposal {
        match (state.queue.get(&lease.request_id), self.command) {
            (Some(waiter), _) => &waiter.proposal,
            (None, Command::Ask { waiter, .. } | Command::Offer { waiter, .. }) => &waiter.proposal,
            (None, command) => panic!("{command:?} granted {lease:?}"),
        }
    }
}

fn left(
    policy: BookingPolicy,
    state: &ResourceState,
    holder: &Requester,
    by_admin: bool,
    now: Timestamp,
) -> Option<Duration> {
    if by_admin {
        return None;
    }
    match policy.mode {
        BookingMode::Advisory => {
            let waits_for_its_lease = open_now(&state.calendar, now).is_some_and(|it| it.holder != *holder);
            (policy.auto_acquire && waits_for_its_lease).then_some(Duration::ZERO)
        }
        BookingMode::Enforced => {
            let taken = taken_from(state, holder);
            let ahead = taken.iter().filter(|it| it.ends_at() > now).map(|it| remaining(now, it.starts_at()));
            ahead.min()
        }
    }
}

fn admits(left: Option<Duration>, proposal: &Proposal) -> bool {
    let least = if proposal.allow_shorter { Duration::from_secs(1).min(proposal.ttl) } else { proposal.ttl };
    left.is_none_or(|left| least <= left)
}

fn open_now(calendar: &Calendar, now: Timestamp) -> Option<&Booking> {
    let mut scheduled = calendar.bookings().filter(|it| it.status == BookingStatus::Scheduled);
    scheduled.find(|it| it.window.contains(now)).map(|it| it.as_ref())
}

fn moves(change: &Change) -> Option<(&Booking, BookingMove)> {
    match change {
        Change::Calendar(CalendarChange::Booking { booking, what }) => Some((booking, *what)),
        _ => None,
    }
}

/// Enforced: no lease inside or across the window of somebody else, an admin excepted.
fn a_lease_keeps_out_of_the_windows_of_others(it: &Happened) {
    it.replay(|state, change| match change {
        Change::Granted { lease, deadline, .. } if !it.is_acquired(lease) => {
            let by_admin = it.proposal(state, lease).by_admin;
            let left = it.left(state, &lease.holder, by_admin);
            assert!(left.is_none_or(|left| deadline.left(it.now().run) <= left), "{left:?} left: {lease:?}");
        }
        Change::Renewed { lease, deadline, told: true, .. } => {
            let by_admin = matches!(it.command, Command::Renew { authority, .. } if authority.is_admin());
            let was = state.held.iter().find(|held| held.lease.id == lease.id).unwrap();
            let left = it.left(state, &lease.holder, by_admin);
            let reaches_on = *deadline > was.deadline;
            let fits = left.is_none_or(|left| deadline.left(it.now().run) <= left);
            assert!(!reaches_on || fits, "{left:?} left: {lease:?}");
        }
        _ => {}
    });
}

/// `allowShorter` cuts to exactly what there is, in whole milliseconds, and never under a second.
fn a_lease_is_cut_only_as_far_as_need_be_and_says_so(it: &Happened) {
    it.replay(|state, change| {
        let Change::Granted { lease, deadline, last_end, .. } = change else { return };
        if it.is_acquired(lease) {
            return;
        }
        let proposal = it.proposal(state, lease);
        match lease.asked_ttl {
            None => assert_eq!(lease.ttl, proposal.ttl),
            Some(asked) => {
                let left = it.left(state, &lease.holder, proposal.by_admin).expect("it was cut for a window");
                assert!(proposal.allow_shorter && asked == proposal.ttl && asked > left);
                assert!(lease.ttl == whole(left) && lease.ttl >= Duration::from_secs(1), "{left:?}: {lease:?}");
            }
        }
        let end = it.now().run + lease.ttl;
        assert_eq!(*deadline, last_end.map_or(end, |last| last.min(end)));
    });
}

/// A lease that was there before somebody booked a part of its time is not shortened by asking for more.
fn a_renew_is_never_shorter_than_it_was_for_a_booking(it: &Happened) {
    let (Command::Renew { lease, ttl, .. }, Reply::Renewed(held, _)) = (it.command, &it.decision.reply) else { return };
    let met = it.met();
    let was = met.held.iter().find(|held| held.lease.id == *lease).unwrap();
    let asked = it.now().run + ttl.unwrap_or(was.lease.ttl);
    assert!(held.deadline >= asked.min(was.deadline), "{was:?} became {held:?}");
    if held.lease.asked_ttl.is_none() {
        assert_eq!(held.deadline, held.last_end.map_or(asked, |last| last.min(asked)));
    } else {
        assert_eq!(held.lease.ttl, whole(held.deadline.left(it.now().run)));
    }
}

/// Where nobody waits and the device is free, a lease that fits is granted, and the refusal of another says exactly how
/// long it could be had.
fn who_fits_is_granted_and_who_does_not_hears_what_would(it: &Happened) {
    let (waiter, otherwise) = match it.command {
        Command::Ask { waiter, otherwise, .. } => (waiter, *otherwise),
        Command::Offer { waiter, .. } => (waiter, Otherwise::Decline(berth::model::WaitPolicy::NoWait)),
        _ => return,
    };
    let (met, proposal) = (it.met(), &waiter.proposal);
    if !met.queue.is_empty() || !met.fits(it.around.spec, it.around.node, proposal.mode, Some(&proposal.holder)) {
        return;
    }
    let left = it.left(met, &proposal.holder, proposal.by_admin);
    let granted = matches!(it.decision.reply, Reply::Granted(_));
    assert_eq!(granted, admits(left, proposal), "{left:?} left: {:?}", it.decision.reply);
    let (Otherwise::Refuse(_), false) = (otherwise, granted) else { return };
    let with = |ttl| {
        let mut waiter: Waiter = (**waiter).clone();
        (waiter.proposal.ttl, waiter.proposal.allow_shorter) = (ttl, false);
        let (waiter, left_out, speaker) = (Box::new(waiter), Default::default(), berth::admission::Speaker::Requester);
        decide(it.before, it.around, Command::Ask { waiter, otherwise, left_out, speaker }).reply
    };
    assert_exact(&it.decision.reply, with);
}

fn a_refused_renew_hears_what_would_fit(it: &Happened) {
    let Command::Renew { lease, fence, authority, .. } = it.command else { return };
    if matches!(&it.decision.reply, Reply::Refused(refusal) if refusal.code == Code::ResourceBooked) {
        let with = |ttl| {
            let (lease, fence, authority) = (lease.clone(), *fence, authority.clone());
            let renew = Command::Renew { lease, fence, ttl: Some(ttl), allow_shorter: false, authority };
            decide(it.before, it.around, renew).reply
        };
        assert_exact(&it.decision.reply, with);
    }
}

/// The refusal's `availableForMs` is granted, and a millisecond more is not.
fn assert_exact(told: &Reply, with: impl Fn(Duration) -> Reply) {
    let Reply::Refused(refusal) = told else { panic!("{told:?}") };
    assert_eq!(refusal.code, Code::ResourceBooked, "{refusal:?}");
    let details = refusal.details.as_ref().unwrap();
    let known = ["availableAt", "availableForMs", "resourceId"];
    assert!(details.keys().all(|key| known.contains(&key.as_str())), "{refusal:?}");
    let words = serde_json::to_string(refusal).unwrap();
    assert!(["kim", "ruth", "omar", "book_", "hold_"].iter().all(|whose| !words.contains(whose)), "{words}");
    let ms = details["availableForMs"].as_u64().unwrap();
    if ms > 0 {
        let told = with(Duration::from_millis(ms));
        assert!(matches!(told, Reply::Granted(_) | Reply::Renewed(_, _)), "{told:?}");
    }
    let more = with(Duration::from_millis(ms + 1));
    assert!(matches!(&more, Reply::Refused(refusal) if refusal.code == Code::ResourceBooked), "{more:?}");
}

/// A waiter whom a window stops is passed over, and blocks nobody behind it; whoever fits is served at once.
fn nobody_who_fits_waits(it: &Happened) {
    if it.after().drained {
        return;
    }
    let stopped = |waiter: &&Waiter| {
        let left = it.left(it.after(), &waiter.proposal.holder, waiter.proposal.by_admin);
        !admits(left, &waiter.proposal)
    };
    let fits = |waiter: &&Waiter| {
        it.after().fits(it.around.spec, it.around.node, waiter.proposal.mode, Some(&waiter.proposal.holder))
    };
    let heard = it.after().queue.iter().filter(|waiter| !stopped(waiter));
    let left = heard.take_while(fits).find(|waiter| waiter.is_attended());
    assert_eq!(left, None, "it fits {:?}", it.after().held);
}

/// What the node acquires for a booker lasts until the end, whatever `lease.max_total` says, and nothing is kept beside.
fn the_booker_has_its_lease_until_the_end(it: &Happened) {
    it.replay(|state, change| {
        let Change::Granted { lease, deadline, last_end, .. } = change else { return };
        if !it.is_acquired(lease) {
            return;
        }
        let open = open_now(&state.calendar, it.now().wall).expect("its window is open");
        assert!(it.policy().auto_acquire && open.holder == lease.holder && state.held.is_empty() && !state.drained);
        let ttl = whole(remaining(it.now().wall, open.window.ends_at()));
        assert_eq!((lease.ttl, *deadline, lease.asked_ttl), (ttl, it.now().run + ttl, None));
        assert!(last_end.is_none_or(|last| last >= *deadline));
        assert_eq!(state.reserved, []);
    });
}

fn a_booking_is_fulfilled_inside_its_window_by_a_lease_of_its_holder(it: &Happened) {
    it.replay(|state, change| {
        let Some((booking, BookingMove::Fulfilled)) = moves(change) else { return };
        let id = booking.lease_id.as_ref().expect("its lease");
        let held = state.held.iter().find(|held| held.lease.id == *id).expect("it is there");
        assert!(booking.window.contains(it.now().wall) && held.lease.holder == booking.holder && booking.claims);
        let was_there = it.before.held.iter().any(|held| held.lease.id == *id);
        if it.policy().auto_acquire && (was_there || it.is_acquired(&held.lease)) {
            let end = it.now().run + whole(remaining(it.now().wall, booking.window.ends_at()));
            assert!(held.deadline >= end, "its deadline is at least the end: {held:?}");
        }
    });
}

fn a_booking_is_missed_only_for_a_reason(it: &Happened) {
    let mut free_since = it.free_since().into_iter();
    it.replay(|state, change| {
        let free_since = free_since.next().expect("one for each change");
        let Some((booking, BookingMove::Missed(why))) = moves(change) else { return };
        assert!(!booking.claims && state.calendar.booking(&booking.id).unwrap().status == BookingStatus::Scheduled);
        match why {
            Miss::Overrun => assert!(it.policy().auto_acquire && booking.window.is_over(it.now().wall)),
            Miss::DeviceFailed => panic!("there are no devices here: {booking:?}"),
            Miss::NoShow => {
                let since = free_since.expect("it is free").max(booking.window.starts_at()).max(booking.created_at);
                let after = it.policy().no_show_after.expect("it is on");
                assert!(remaining(since, it.now().wall) >= after, "free since {since}: {booking:?}");
            }
        }
    });
}

/// The window of a fulfilled booking is its holder's until that lease ends, and then free.
fn a_window_is_freed_only_with_its_lease(it: &Happened) {
    it.replay(|state, change| {
        let Some((booking, BookingMove::Freed)) = moves(change) else { return };
        let was = state.calendar.booking(&booking.id).unwrap();
        assert!(was.claims && !booking.claims && booking.status == BookingStatus::Fulfilled);
        assert!(state.held.iter().all(|held| Some(&held.lease.id) != booking.lease_id.as_ref()));
    });
}

/// Enforced: what is kept for one who may not have it anyway is kept no more.
fn nothing_is_kept_in_the_window_of_another(it: &Happened) {
    if it.policy().mode == BookingMode::Enforced {
        for kept in &it.after().reserved {
            let inside = taken_from(it.after(), &kept.holder).iter().any(|it_is| it_is.contains(it.now().wall));
            assert!(!inside, "{kept:?}");
        }
    }
}

/// By default leases go on as if there were no calendar.
fn an_advisory_calendar_does_nothing_to_leases(it: &Happened) {
    if it.policy() != BookingPolicy::default() {
        return;
    }
    for change in &it.decision.changes {
        if let Some((_, what)) = moves(change) {
            assert!(!matches!(what, BookingMove::Fulfilled | BookingMove::Missed(_) | BookingMove::Freed));
        }
    }
    if matches!(it.command, Command::Calendar(_)) {
        return;
    }
    let without = ResourceState { calendar: Calendar::default(), ..it.before.clone() };
    let alone = decide(&without, it.around, it.command.clone());
    let leases = it.decision.changes.iter().filter(|change| !matches!(change, Change::Calendar(_)));
    assert_eq!(leases.cloned().collect::<Vec<_>>(), alone.changes);
    assert_eq!(it.decision.reply, alone.reply);
}

/// A booking or a hold that is answered is the one that is there.
fn the_answer_is_what_is_there(it: &Happened) {
    let bookings = match &it.decision.reply {
        Reply::Calendar(CalendarReply::Booked(all)) => all.clone(),
        Reply::Calendar(CalendarReply::Booking(one)) => vec![one.clone()],
        Reply::Calendar(CalendarReply::Cancelled(one, rest)) => [one].into_iter().chain(rest).cloned().collect(),
        _ => return,
    };
    for booking in bookings {
        assert_eq!(Some(&booking), it.after().calendar.booking(&booking.id));
    }
}

/// Nothing changes by itself before the deadline and the edge that the resource names.
fn time_alone_does_nothing_before_it_said(it: &Happened) {
    let (state, now) = (it.after(), it.now());
    let wake = state.wake_at(it.around.spec, it.around.rules, it.around.node, now).map(|at| at.left(now.run));
    let edge = state.next_edge(it.around.spec, it.around.node, now.wall).map(|at| remaining(now.wall, at));
    let Some(next) = wake.into_iter().chain(edge).min().or(Some(Duration::from_secs(3_600))) else { return };
    let Some(just_before) = next.checked_sub(Duration::from_micros(1)) else { return };
    let wall = now.wall.checked_add(just_before).unwrap();
    let wall = Timestamp::from_microsecond(wall.as_microsecond()).unwrap();
    let then = Now { wall, run: now.run + just_before };
    let decision = decide(state, &Around { now: then, ..*it.around }, Command::Wake);
    // One that waits may fit sooner: when somebody ahead, who wants it alone, has no more room before a window. It is
    // served by the next decision, whatever that is, and at the latest at the edge.
    let settles = |change: &&Change| match change {
        Change::Granted { lease, .. } => it.is_acquired(lease),
        change => matches!(change, Change::Calendar(_) | Change::Ended { .. }),
    };
    assert_eq!(decision.changes.iter().find(settles), None, "at {then:?}");
    for holder in ["kim", "ruth", "omar"] {
        let holder: Requester = holder.parse().unwrap();
        let stopped = |at| left(it.policy(), state, &holder, false, at) == Some(Duration::ZERO);
        assert_eq!(stopped(now.wall), stopped(wall), "{holder} at {then:?}");
    }
}

/// Every booking whose time has come is fulfilled, granted, or missed.
pub fn bookings_are_settled(state: &ResourceState, around: &Around<'_>) {
    let (policy, now) = (around.spec.bookings, around.now.wall);
    for booking in state.calendar.bookings() {
        if let (BookingStatus::Fulfilled, Some(lease)) = (booking.status, &booking.lease_id) {
            let there = state.held.iter().any(|held| held.lease.id == *lease);
            assert_eq!(booking.claims, there, "{booking:?}");
        } else {
            assert_eq!(booking.claims, booking.status == BookingStatus::Scheduled);
        }
        let over = booking.status == BookingStatus::Scheduled && booking.window.is_over(now);
        assert!(!(over && policy.auto_acquire), "over, and not missed: {booking:?}");
    }
    if policy == BookingPolicy::default() {
        return;
    }
    let Some(open) = open_now(&state.calendar, now) else { return };
    assert!(state.held.iter().all(|held| held.lease.holder != open.holder), "its holder is there: {open:?}");
    if !state.held.is_empty() || state.drained {
        return;
    }
    let lasts = whole(remaining(now, open.window.ends_at())) > Duration::ZERO;
    assert!(!(policy.auto_acquire && lasts), "its holder could be: {open:?}");
    if let (false, Some(after)) = (policy.auto_acquire, policy.no_show_after) {
        let since = state.free_since.expect("it is free").max(open.window.starts_at()).max(open.created_at);
        assert!(remaining(since, now) < after, "nobody came since {since}: {open:?}");
    }
}
