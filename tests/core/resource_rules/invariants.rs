//! What is true of every decision, whatever came before: one function for each invariant.

use std::collections::BTreeSet;
use std::time::Duration;

use berth::admission::history::event_of;
use berth::admission::resource::{Around, Change, Command, Decision, Departure, Reply, ResourceState, apply, decide};
use berth::admission::{Rank, Waiter};
use berth::clock::{Now, RunTime};
use berth::model::{Mode, RequestId};

use super::model::merged;

/// One decision, and what it makes of the resource.
pub struct Happened<'a> {
    pub before: &'a ResourceState,
    pub around: &'a Around<'a>,
    pub command: &'a Command,
    pub decision: &'a Decision,
    pub after: ResourceState,
}

impl<'a> Happened<'a> {
    pub fn new(
        before: &'a ResourceState,
        around: &'a Around<'a>,
        command: &'a Command,
        decision: &'a Decision,
    ) -> Self {
        let mut after = before.clone();
        decision.changes.iter().for_each(|change| apply(&mut after, change.clone()));
        Self { before, around, command, decision, after }
    }

    pub fn check(&self) {
        let invariants = [
            seats_are_kept,
            nobody_is_overtaken,
            nobody_who_fits_is_left,
            one_admission_for_each_freeing,
            an_admission_is_left_if_rivals_stood_in_the_way,
            one_unattended_entry_for_each_requester,
            positions_count_from_one,
            two_waiters_never_swap,
            who_asks_again_keeps_the_place,
            a_sign_of_life_is_not_durable,
            events_have_their_fields,
            an_attended_waiter_ends_once,
            the_hand_over_comes_last,
            time_alone_does_nothing_before_it_said,
        ];
        invariants.iter().for_each(|holds| holds(self));
    }

    /// Each change with the state that it meets.
    fn replay(&self, mut visit: impl FnMut(&ResourceState, &Change)) {
        let mut state = self.before.clone();
        for change in &self.decision.changes {
            visit(&state, change);
            apply(&mut state, change.clone());
        }
    }

    fn changes(&self, is: impl Fn(&Change) -> bool) -> usize {
        self.decision.changes.iter().filter(|change| is(change)).count()
    }
}

/// I1: never two exclusive leases, nor an exclusive beside a shared, nor more shared ones than there are seats.
fn seats_are_kept(it: &Happened) {
    let seats = it.around.spec.max_shared.get() as usize;
    let kept = |state: &ResourceState| {
        let alone = state.held.iter().all(|held| held.lease.mode == Mode::Shared) || state.held.len() == 1;
        assert!(alone && state.held.len() <= seats, "I1: {:?}", state.held);
    };
    it.replay(|state, _| kept(state));
    kept(&it.after);
}

/// Somebody who is granted, or admitted.
struct Taken {
    rank: Rank,
    mode: Mode,
    returned: bool,
    /// It was kept for it.
    kept: bool,
    request: RequestId,
    holder: String,
}

/// I7: nobody is granted or admitted before an attended waiter ahead that fits, past an exclusive one that waits for
/// its room, during another's reservation, past a rival that ranks before and fits, or in place of those who return.
fn nobody_is_overtaken(it: &Happened) {
    let (spec, rivals) = (it.around.spec, &it.around.rivals);
    let (mut claimed, mut standing) = (None, None);
    it.replay(|state, change| {
        let taken = match change {
            Change::Unreserved { holder } => {
                let kept = state.reserved.iter().find(|kept| kept.holder == *holder);
                claimed = kept.filter(|kept| kept.until > it.around.now.run).map(|kept| kept.holder.clone());
                return;
            }
            Change::Left { waiter, why: Departure::Granted, .. } => {
                standing = Some((**waiter).clone());
                return;
            }
            Change::Left { waiter, why: Departure::Admitted { .. }, .. } => (**waiter).clone(),
            Change::Granted { lease, .. } => who_is(it, state, &lease.request_id, standing.as_ref()),
            _ => return,
        };
        let kept = state.reserved.iter().map(|kept| &kept.holder).chain(&claimed);
        let kept = kept.into_iter().any(|holder| *holder == taken.proposal.holder);
        let taken = Taken {
            rank: taken.rank,
            mode: taken.proposal.mode,
            returned: taken.returns.is_some(),
            kept,
            request: taken.proposal.request.clone(),
            holder: taken.proposal.holder.to_string(),
        };
        let holder = taken.holder.parse().unwrap();
        assert!(state.fits(spec, it.around.node, taken.mode, Some(&holder)), "I7: {change:?} in {state:?}");
        if !taken.kept {
            state.queue.iter().for_each(|other| assert_not_ahead(it, state, other, &taken));
            assert_no_rival_ahead(it, state, &taken);
            assert!(rivals.returning.is_none() || taken.returned, "I7: {} has not returned", taken.request);
        }
    });
}

/// Who gets this lease, with its place.
fn who_is(it: &Happened, state: &ResourceState, request: &RequestId, standing: Option<&Waiter>) -> Waiter {
    if let Some(waiter) = state.queue.get(request) {
        assert!(waiter.is_attended(), "an unattended waiter gets its lease by asking");
        return waiter.clone();
    }
    match (it.command, standing) {
        (Command::Ask { waiter, left_out, .. }, Some(standing)) => {
            merged(standing, waiter, *left_out, it.around.rules.priority_aging, it.around.now)
        }
        (Command::Ask { waiter, .. } | Command::Offer { waiter, .. }, _) => (**waiter).clone(),
        (command, _) => panic!("{command:?} granted {request}, which waited nowhere"),
    }
}

fn assert_not_ahead(it: &Happened, state: &ResourceState, other: &Waiter, taken: &Taken) {
    let is_away = it.around.node.is_away(&other.proposal.holder);
    if other.proposal.request == taken.request || other.rank >= taken.rank || is_away {
        return;
    }
    let same = other.proposal.holder.to_string() == taken.holder && !other.is_attended();
    let may_not_yet = it.around.rivals.returning.is_some() && other.returns.is_none() && taken.returned;
    if state.fits(it.around.spec, it.around.node, other.proposal.mode, Some(&other.proposal.holder)) {
        assert!(!other.is_attended() || may_not_yet, "I7: {} before {other:?}", taken.request);
    } else {
        let slips_in = other.proposal.mode == Mode::Exclusive && !same;
        assert!(!slips_in, "an exclusive waiter ahead stops {}: {other:?}", taken.request);
    }
}

fn assert_no_rival_ahead(it: &Happened, state: &ResourceState, taken: &Taken) {
    let rivals = &it.around.rivals;
    let ahead = |rank: Option<Rank>| rank.is_some_and(|rank| rank < taken.rank);
    let fits = |mode| state.fits(it.around.spec, it.around.node, mode, None);
    assert!(!(ahead(rivals.exclusive) && fits(Mode::Exclusive)), "I7: {} before an exclusive rival", taken.request);
    assert!(!(ahead(rivals.shared) && fits(Mode::Shared)), "I7: {} before a shared rival", taken.request);
    assert!(!(ahead(rivals.pinned) && taken.mode == Mode::Shared), "I7: {} slips past a pinned one", taken.request);
    assert!(!ahead(rivals.returning), "I7: {} before one that may return", taken.request);
}

/// As I8: when nobody else could have the resource, no attended waiter that fits is left, behind none that does not.
fn nobody_who_fits_is_left(it: &Happened) {
    if it.around.rivals != Default::default() {
        return;
    }
    let fits = |waiter: &&Waiter| {
        it.after.fits(it.around.spec, it.around.node, waiter.proposal.mode, Some(&waiter.proposal.holder))
    };
    let there = it.after.queue.iter().filter(|waiter| !it.around.node.is_away(&waiter.proposal.holder));
    let left = there.take_while(fits).find(|waiter| waiter.is_attended());
    assert_eq!(left, None, "I8: it fits {:?}", it.after.held);
}

/// One admission for each freeing: an end, a lapse, a return to service, or one fewer in the way.
fn one_admission_for_each_freeing(it: &Happened) {
    let in_the_way = |state: &ResourceState, waiter: &Waiter| {
        !state.fits(it.around.spec, it.around.node, waiter.proposal.mode, None)
    };
    let mut freeings = usize::from(matches!(it.command, Command::Serve { freed: Some(_) }));
    it.replay(|state, change| {
        freeings += usize::from(match change {
            Change::Ended { .. } | Change::Unreserved { .. } | Change::Drained { drained: false, .. } => true,
            Change::Left { waiter, .. } => in_the_way(state, waiter),
            Change::Moved { former, .. } => state.queue.get(former).is_some_and(|waiter| in_the_way(state, waiter)),
            _ => false,
        });
    });
    let admitted = it.changes(|change| matches!(change, Change::Left { why: Departure::Admitted { .. }, .. }));
    assert!(admitted <= freeings.min(2), "{admitted} admitted: {:?}", it.decision.changes);
}

/// What a freeing did not come to is left, and told, only because others are to be asked before, or somebody's gateway is
/// away.
fn an_admission_is_left_if_rivals_stood_in_the_way(it: &Happened) {
    let is_admission = |change: &Change| matches!(change, Change::Left { why: Departure::Admitted { .. }, .. });
    let alone = Around { rivals: Default::default(), ..*it.around };
    if it.decision.admission_left {
        let offered = matches!(it.command, Command::Offer { .. });
        let away = |waiter: &Waiter| !waiter.is_attended() && it.around.node.is_away(&waiter.proposal.holder);
        let passed_over = it.before.queue.iter().chain(it.after.queue.iter()).any(away);
        assert!(offered || passed_over || it.around.rivals != alone.rivals, "nobody else is to be asked");
    } else if it.changes(|change| matches!(change, Change::Ended { .. })) > 0 && it.changes(is_admission) == 0 {
        let served = decide(&it.after, &alone, Command::Serve { freed: Some(Duration::ZERO) });
        let forgotten = served.changes.iter().find(|change| match change {
            Change::Left { waiter, why: Departure::Admitted { .. }, .. } => {
                it.before.queue.get(&waiter.proposal.request).is_some()
            }
            _ => false,
        });
        assert_eq!(forgotten, None);
    }
}

fn one_unattended_entry_for_each_requester(it: &Happened) {
    let mut seen = BTreeSet::new();
    for waiter in it.after.queue.iter().filter(|waiter| !waiter.is_attended()) {
        assert!(seen.insert(&waiter.proposal.holder), "{} stands here twice", waiter.proposal.holder);
        assert_eq!(it.after.queue.unattended_of(&waiter.proposal.holder), Some(waiter));
    }
}

/// Positions are 1-based over both kinds, in the queue and in what is told and stored.
fn positions_count_from_one(it: &Happened) {
    let place = |state: &ResourceState, request: &RequestId| {
        1 + state.queue.iter().position(|waiter| waiter.proposal.request == *request).expect("it stands there")
    };
    for (index, waiter) in it.after.queue.iter().enumerate() {
        assert_eq!(it.after.queue.position(waiter.rank), index + 1);
    }
    assert_eq!(it.after.queue.len(), it.after.queue.iter().count());
    let mut state = it.before.clone();
    for change in &it.decision.changes {
        apply(&mut state, change.clone());
        match change {
            Change::Joined { waiter, position } => assert_eq!(*position, place(&state, &waiter.proposal.request)),
            Change::Queued { request, position, .. } => assert_eq!(*position, place(&state, request)),
            _ => {}
        }
    }
    if let Reply::Pending { request, position } = &it.decision.reply
        && it.after.queue.get(request).is_some()
    {
        assert_eq!(*position, place(&it.after, request));
    }
}

fn two_waiters_never_swap(it: &Happened) {
    let both = |state: &ResourceState, other: &ResourceState| -> Vec<RequestId> {
        let requests = state.queue.iter().map(|waiter| waiter.proposal.request.clone());
        requests.filter(|request| other.queue.get(request).is_some()).collect()
    };
    assert_eq!(both(it.before, &it.after), both(&it.after, it.before));
    assert!(it.after.queue.iter().is_sorted_by_key(|waiter| waiter.rank));
}

fn who_asks_again_keeps_the_place(it: &Happened) {
    let (Command::Ask { waiter, left_out, .. }, Reply::Pending { .. }) = (it.command, &it.decision.reply) else {
        return;
    };
    let holder = &waiter.proposal.holder;
    let (Some(was), Some(is)) = (it.before.queue.unattended_of(holder), it.after.queue.unattended_of(holder)) else {
        return;
    };
    let gone = |change: &Change| matches!(change, Change::Left { waiter, .. } if **waiter == *was);
    if it.changes(gone) > 0 {
        return;
    }
    assert_eq!((is.rank.joined(), is.joined_at), (was.rank.joined(), was.joined_at), "it has waited all the time");
    assert_eq!(is.last_seen(), Some(it.around.now.run));
    assert_eq!(is.proposal.mode, was.proposal.mode);
    assert!(is.proposal.lease == was.proposal.lease || was.restored, "its lease id is what it was");
    if left_out.priority {
        assert_eq!(is.rank, was.rank);
        let position = |state: &ResourceState| state.queue.position(is.rank);
        assert!(position(&it.after) <= position(it.before), "nobody has come before it");
    }
    if !left_out.ttl {
        assert_eq!(is.proposal.ttl, waiter.proposal.ttl, "the last ask counts");
    }
    assert!(waiter.proposal.note.is_none() || is.proposal.note == waiter.proposal.note, "the last ask counts");
}

/// What lives in memory only changes nothing but when somebody was seen.
fn a_sign_of_life_is_not_durable(it: &Happened) {
    let mut durable = it.before.clone();
    for change in &it.decision.changes {
        assert_eq!(change.is_durable(), !matches!(change, Change::Seen { .. }));
        if change.is_durable() {
            apply(&mut durable, change.clone());
        }
    }
    let order = |state: &ResourceState| -> Vec<_> {
        state.queue.iter().map(|waiter| (waiter.proposal.clone(), waiter.rank, waiter.joined_at)).collect()
    };
    assert_eq!(order(&durable), order(&it.after));
    assert_eq!((&durable.held, &durable.reserved), (&it.after.held, &it.after.reserved));
}

/// An event has the fields of its kind, and the lease id is never in what was requested.
fn events_have_their_fields(it: &Happened) {
    for change in &it.decision.changes {
        let Some(event) = event_of(change, Some(&it.around.spec.id), it.around.now) else { continue };
        let fields = event.kind.fields();
        for key in event.payload.keys() {
            assert!(fields.iter().any(|field| field.trim_end_matches('?') == key), "{}: {key}", event.kind);
        }
        for field in fields.iter().filter(|field| !field.ends_with('?')) {
            assert!(event.payload.contains_key(*field), "{} lacks {field}", event.kind);
        }
        let proposal = match change {
            Change::Requested { proposal, .. }
            | Change::Rejected { proposal, .. }
            | Change::Declined { proposal, .. } => proposal,
            _ => continue,
        };
        let spec = event.payload["requestSpec"].to_string();
        assert!(!spec.contains(proposal.lease.as_str()), "{}: {spec}", event.kind);
    }
}

/// An attended waiter that is gone was granted or rejected, once; one that is there was neither.
fn an_attended_waiter_ends_once(it: &Happened) {
    let joined = it.decision.changes.iter().filter_map(|change| match change {
        Change::Joined { waiter, .. } => Some(waiter),
        _ => None,
    });
    for waiter in it.before.queue.iter().chain(joined).filter(|waiter| waiter.is_attended()) {
        let ends = it.changes(|change| match change {
            Change::Granted { lease, .. } => lease.request_id == waiter.proposal.request,
            Change::Rejected { proposal, .. } => proposal.request == waiter.proposal.request,
            _ => false,
        });
        let there = it.after.queue.get(&waiter.proposal.request).is_some();
        assert_eq!(ends, usize::from(!there), "{waiter:?}");
    }
}

/// If the database refuses the hand-over, the rest can be committed alone; so an end by itself is never part of it.
/// (Whom time had served before the command is not the command's own hand-over.)
fn the_hand_over_comes_last(it: &Happened) {
    if it.decision.handed_over_from < it.decision.command_from {
        return;
    }
    let (own, handed_over) = it.decision.changes.split_at(it.decision.handed_over_from);
    for change in handed_over {
        let ours = matches!(
            change,
            Change::Granted { .. }
                | Change::Reserved(_)
                | Change::Unreserved { .. }
                | Change::Left { why: Departure::Admitted { .. }, .. }
        );
        assert!(ours, "{change:?} is no part of a hand-over");
    }
    if matches!(it.command, Command::Wake) {
        let granted = own.iter().any(|change| matches!(change, Change::Granted { .. }));
        assert!(!granted, "what time has ended can be committed without whom it was handed to: {own:?}");
    }
}

/// Waking changes nothing more now, nothing before the time that was said, and something at that time.
fn time_alone_does_nothing_before_it_said(it: &Happened) {
    let waked = |run: RunTime| {
        let now = Now { run, ..it.around.now };
        decide(&it.after, &Around { now, ..*it.around }, Command::Wake).changes
    };
    assert_eq!(waked(it.around.now.run), [], "all has been done");
    if let Some(at) = it.after.wake_at(it.around.spec, it.around.rules, it.around.node, it.around.now) {
        assert!(at > it.around.now.run, "what was due is done");
        assert_eq!(waked(RunTime(at.0 - Duration::from_nanos(1))), [], "nothing is due yet");
        assert_ne!(waked(at), [], "something is due");
    }
}
