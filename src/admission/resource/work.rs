//! What is done to the device around its leases, decided (SPEC §7).

use std::sync::Arc;
use std::time::Duration;

use super::device::{Claim, Claimant, Cooling, Health, OfLease, Quarantine, Reset, Retry, Task, Work};
use super::draft::Draft;
use super::{Change, DeviceChange, EndReason, HEALTH_DEBOUNCE, Held, Rejection, Reply, booked, refuse};
use crate::admission::calendar::Miss;
use crate::model::{
    BookingId, DeviceIdentity, DriverKind, HookFailure, HookKind, LeaseRecord, Notice, NoticeKind, Proposal, RequestId,
    Target,
};

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worked {
    /// Which.
    pub task: Task,
    /// Whether it did what it should.
    pub outcome: Result<(), HookFailure>,
    /// How long it took.
    pub took: Duration,
}

/// Gives the resource to one who is next: its lease, or none where it gets a claim on one. `stored` is true when its request
/// is on disk.
pub(super) fn give(draft: &mut Draft<'_>, waiter: super::Waiter, stored: bool) -> Option<Held> {
    if !claims(draft) {
        return Some(draft.grant(&waiter.proposal));
    }
    let proposal = waiter.proposal.clone();
    claim(draft, &proposal, Claimant::Waiter { waiter: Box::new(waiter), stored });
    None
}

/// The same for the holder of a booking. False where the lease is there at once. `waited` is true for the proposal of a
/// request that waits, and is to hear how this ends.
pub(super) fn claim_for_booking(draft: &mut Draft<'_>, booking: &BookingId, proposal: &Proposal, waited: bool) -> bool {
    let claims = claims(draft);
    if claims {
        let (booking, proposal) = (booking.clone(), Box::new(proposal.clone()));
        claim(draft, &proposal.clone(), Claimant::Booking { booking, proposal, waited });
    }
    claims
}

/// True when whoever is next gets a claim. Whoever shares it with others finds it prepared.
pub(super) fn claims(draft: &Draft<'_>) -> bool {
    draft.around.spec.driver.prepare.is_some() && draft.held.is_empty()
}

fn claim(draft: &mut Draft<'_>, proposal: &Proposal, claimant: Claimant) {
    if draft.is_reserved_for(&proposal.holder) {
        draft.push(Change::Unreserved { holder: proposal.holder.clone() });
    }
    let fence = draft.next_fence();
    let of = OfLease { lease: proposal.lease.clone(), holder: proposal.holder.clone(), fence };
    set_work(draft, Work::Preparing(Box::new(Claim { of, claimant, at: draft.around.now.wall })));
    draft.note_state("made ready for a lease");
}

/// The last holder has gone, or a claim is over.
pub(super) fn after_use(draft: &mut Draft<'_>, of: OfLease, unclean: bool, reason: &str) {
    bring_back(draft, of, unclean);
    draft.note_state(reason);
}

/// The same, without a word about it.
fn bring_back(draft: &mut Draft<'_>, of: OfLease, unclean: bool) {
    let now = draft.around.now;
    let width = draft.around.spec.lock_delay;
    if unclean && !width.is_zero() {
        let until = now.run + width;
        let cooling = Cooling { until, width, ends_at: now.wall_at(until) };
        draft.push(Change::Device(DeviceChange::Cooling(Some(cooling))));
    }
    if is_to_reset(draft) {
        set_work(draft, Work::Resetting(Reset { of, since: now.run }));
    } else {
        set_work(draft, Work::None);
        look_if_ill(draft, Some(of));
        leave(draft);
    }
    if draft.is_out() {
        draft.freed = false;
    }
}

/// True when the device is reset after a lease, or may have to be.
fn is_to_reset(draft: &Draft<'_>) -> bool {
    draft.around.driver.reset.is_some() || draft.around.driver.is_unknown
}

/// Why the end of a lease changes the state, in words; and whether it was one that nobody released.
pub(super) fn end_of(reason: EndReason) -> (&'static str, bool) {
    match reason {
        EndReason::Explicit => ("lease released", false),
        EndReason::Admin => ("lease released by an admin", false),
        EndReason::Expired => ("lease expired", true),
    }
}

pub(super) fn of_lease(lease: &LeaseRecord) -> OfLease {
    OfLease { lease: lease.id.clone(), holder: lease.holder.clone(), fence: lease.fence }
}

/// Nobody has the device any more. Where the lab file has been read anew meanwhile and says another, the resource is that one
/// from here on, and whoever is next does not get the former.
fn leave(draft: &mut Draft<'_>) {
    let kind = &draft.around.spec.driver.kind;
    if draft.device.work == Work::None && *kind != draft.around.driver.kind {
        let absent = unseen(kind);
        draft.push(Change::Device(DeviceChange::Identity(None)));
        draft.push(Change::Device(DeviceChange::Absent(absent)));
        set_health(draft, Health::default());
    }
}

/// Why a device of this kind is absent before its driver has seen it, if it is.
pub fn unseen(kind: &DriverKind) -> Option<Arc<str>> {
    matches!(kind, DriverKind::Adb(_)).then(|| "not seen by the adb server yet".into())
}

/// A device that counts as ill is looked at before it is granted again.
fn look_if_ill(draft: &mut Draft<'_>, of: Option<OfLease>) {
    if let Some(why) = draft.device.health.ill.clone() {
        set_health(draft, Health::default());
        let next = if draft.around.spec.driver.checks() { Retry::Now } else { Retry::Never };
        set_work(draft, Work::Quarantined(Quarantine { of, fault: HookKind::Health, why, tries: 0, next }));
    }
}

/// What time has done to the device.
pub(super) fn settle_time(draft: &mut Draft<'_>) {
    let now = draft.around.now;
    match draft.device.work.clone() {
        Work::Preparing(claim) if claim.claimant == Claimant::Nobody => {
            after_use(draft, claim.of, true, "the node was restarted while it was made ready");
        }
        Work::Resetting(_) if !is_to_reset(draft) => {
            set_work(draft, Work::None);
            draft.freed = true;
            draft.note_state("it has no reset any more");
        }
        Work::Quarantined(quarantine @ Quarantine { next: Retry::At(at), .. }) if at <= now.run => {
            set_work(draft, Work::Quarantined(Quarantine { next: Retry::Now, ..quarantine }));
        }
        _ => {}
    }
    if draft.device.cooling.is_some_and(|cooling| cooling.until <= now.run) {
        draft.push(Change::Device(DeviceChange::Cooling(None)));
        draft.freed = true;
        draft.note_state("left alone for long enough");
    }
}

/// A hook has ended. One that is not the one to be done now changes nothing.
pub(super) fn worked(draft: &mut Draft<'_>, worked: Worked) -> Reply {
    let Worked { task, outcome, took } = worked;
    let (fence, tries) = (task.fence, task.tries);
    match (task.hook, draft.device.work.clone()) {
        (HookKind::Prepare, Work::Preparing(claim)) if (claim.of.fence, tries) == (fence, None) => {
            return prepared(draft, *claim, outcome);
        }
        (HookKind::Reset, Work::Resetting(reset)) if (reset.of.fence, tries) == (fence, None) => {
            reset_ended(draft, reset, outcome, took)
        }
        (hook, Work::Quarantined(it))
            if it.fault == hook && it.next == Retry::Now && Some(it.tries) == tries && is_after(draft, &it, fence) =>
        {
            tried(draft, it, outcome, took);
        }
        (HookKind::Health, Work::None)
            if tries.is_none() && fence == draft.fence() && draft.device.absent.is_none() =>
        {
            checked(draft, outcome);
        }
        _ => {}
    }
    Reply::Done
}

fn is_after(draft: &Draft<'_>, quarantine: &Quarantine, fence: crate::model::Fence) -> bool {
    quarantine.of.as_ref().map_or(draft.fence(), |of| of.fence) == fence
}

fn prepared(draft: &mut Draft<'_>, claim: Claim, outcome: Result<(), HookFailure>) -> Reply {
    let too_late = |why| HookFailure { hook: HookKind::Prepare, why, output: String::new() };
    let failure = match (outcome, draft.device.absent.clone()) {
        // Nobody can use what has gone meanwhile.
        (Ok(()), Some(why)) => too_late(format!("the device has gone: {why}")),
        (Ok(()), None) => match grant(draft, &claim) {
            Ok(held) => {
                draft.note_state("lease granted");
                return Reply::Prepared(Some(held));
            }
            Err(why) => too_late(why),
        },
        (Err(failure), _) => failure,
    };
    let failure = Arc::new(failure);
    set_failure(draft, Some(Arc::clone(&failure)));
    bring_back(draft, claim.of.clone(), false);
    draft.note_failure();
    match claim.claimant {
        Claimant::Waiter { waiter, stored } => {
            let proposal = waiter.proposal.clone();
            let refusal = refuse::device_failed(&proposal, &draft.around.spec.id, &failure);
            if let Target::Select(_) = &proposal.target {
                return Reply::Unprepared { waiter, stored, refusal };
            }
            if !stored {
                draft.declined(&proposal, refusal.code);
                return Reply::Unprepared { waiter, stored, refusal };
            }
            let at = draft.around.now.wall;
            draft.push(Change::Rejected { proposal, reason: Rejection::DeviceFailed, refusal, waited: true, at });
        }
        Claimant::Booking { booking, proposal, waited } => {
            booked::missed(draft, &booking, Miss::DeviceFailed);
            if waited {
                let refusal = refuse::device_failed(&proposal, &draft.around.spec.id, &failure);
                let (proposal, at) = (*proposal, draft.around.now.wall);
                draft.push(Change::Rejected { proposal, reason: Rejection::DeviceFailed, refusal, waited: true, at });
            }
        }
        Claimant::Nobody => {}
    }
    Reply::Prepared(None)
}

/// The lease of a claim. Where a booking has come in its way meanwhile it is cut to fit.
fn grant(draft: &mut Draft<'_>, claim: &Claim) -> Result<Held, String> {
    set_work(draft, Work::None);
    succeeded(draft, HookKind::Prepare);
    match &claim.claimant {
        Claimant::Waiter { waiter, .. } => draft
            .grant_claimed(&waiter.proposal, claim.of.fence)
            .ok_or_else(|| "came too late: it is booked now".to_owned()),
        // One that waits goes on without the booking.
        Claimant::Booking { booking, proposal, waited } => {
            booked::grant_claimed(draft, booking, proposal, claim.of.fence)
                .or_else(|| if *waited { draft.grant_claimed(proposal, claim.of.fence) } else { None })
                .ok_or_else(|| "came too late: the booking is over".to_owned())
        }
        Claimant::Nobody => Err("came too late".to_owned()),
    }
}

fn reset_ended(draft: &mut Draft<'_>, reset: Reset, outcome: Result<(), HookFailure>, took: Duration) {
    match outcome {
        Ok(()) => is_reset(draft, Some(reset.of), took),
        // It was unplugged meanwhile: the reset is done when it is there again.
        Err(_) if draft.device.absent.is_some() => {}
        Err(failure) => {
            let (why, next) = (failed(draft, failure), Retry::after(0, draft.around.now.run));
            let of = Some(reset.of);
            set_work(draft, Work::Quarantined(Quarantine { of, fault: HookKind::Reset, why, tries: 0, next }));
            draft.note_failure();
        }
    }
}

fn is_reset(draft: &mut Draft<'_>, of: Option<OfLease>, took: Duration) {
    succeeded(draft, HookKind::Reset);
    draft.push(Change::Device(DeviceChange::ResetTook(took)));
    set_work(draft, Work::None);
    look_if_ill(draft, of);
    leave(draft);
    draft.freed |= !draft.is_out();
    draft.note_state("reset");
}

/// A device in quarantine was tried again.
fn tried(draft: &mut Draft<'_>, it: Quarantine, outcome: Result<(), HookFailure>, took: Duration) {
    match outcome {
        Ok(()) if it.fault == HookKind::Reset => is_reset(draft, it.of, took),
        Ok(()) => {
            succeeded(draft, HookKind::Health);
            set_work(draft, Work::None);
            leave(draft);
            draft.freed |= !draft.is_out();
            draft.note_state("its check passes again");
        }
        Err(failure) => {
            let tries = it.tries + 1;
            let (why, next) = (failed(draft, failure), Retry::after(tries, draft.around.now.run));
            set_work(draft, Work::Quarantined(Quarantine { why, tries, next, ..it }));
        }
    }
}

/// A check that comes again and again has ended.
fn checked(draft: &mut Draft<'_>, outcome: Result<(), HookFailure>) {
    let Health { failures, passes, ill } = draft.device.health.clone();
    match outcome {
        Ok(()) => {
            let passes = passes.saturating_add(1);
            let recovered = ill.is_some() && passes >= HEALTH_DEBOUNCE;
            let health =
                if ill.is_none() || recovered { Health::default() } else { Health { failures: 0, passes, ill } };
            set_health(draft, health);
            if recovered {
                succeeded(draft, HookKind::Health);
                tell_holders(draft, NoticeKind::DeviceRecovered, "its check passes again");
                draft.freed |= !draft.is_out();
                draft.note_state("its check passes again");
            }
        }
        Err(failure) => {
            let failures = failures.saturating_add(1);
            let turns = ill.is_none() && failures >= HEALTH_DEBOUNCE;
            let mut health = Health { failures, passes: 0, ill };
            if !turns {
                return set_health(draft, health);
            }
            let why = failed(draft, failure);
            health.ill = Some(Arc::clone(&why));
            set_health(draft, health);
            if draft.held.is_empty() {
                set_health(draft, Health::default());
                let next = Retry::after(0, draft.around.now.run);
                set_work(
                    draft,
                    Work::Quarantined(Quarantine { of: None, fault: HookKind::Health, why, tries: 0, next }),
                );
                draft.note_failure();
            } else {
                tell_holders(draft, NoticeKind::DeviceUnhealthy, &why);
            }
        }
    }
}

/// The driver sees the device, or does not.
pub(super) fn sighted(draft: &mut Draft<'_>, absent: Option<Arc<str>>, identity: Option<DeviceIdentity>) -> Reply {
    // One that is away is the same when it comes back.
    if identity.is_some() && draft.device.identity != identity {
        draft.push(Change::Device(DeviceChange::Identity(identity)));
    }
    let was = draft.device.absent.clone();
    if was != absent {
        draft.push(Change::Device(DeviceChange::Absent(absent.clone())));
        match (&was, &absent) {
            (None, Some(why)) => tell_holders(draft, NoticeKind::DeviceUnhealthy, why),
            (Some(_), None) => tell_holders(draft, NoticeKind::DeviceRecovered, "it is there again"),
            _ => {}
        }
        draft.freed |= was.is_some() && !draft.is_out() && draft.held.is_empty();
        draft.note_state(absent.as_deref().unwrap_or("it is there"));
    }
    Reply::Done
}

/// An operator says that a device in quarantine is as it should be, or that one is not waited for that went before its reset
/// and may never come back.
pub(super) fn clear(draft: &mut Draft<'_>) -> Reply {
    let waits_for_it = matches!(draft.device.work, Work::Resetting(_)) && draft.device.absent.is_some();
    if waits_for_it || matches!(draft.device.work, Work::Quarantined(_)) {
        set_failure(draft, None);
        set_health(draft, Health::default());
        set_work(draft, Work::None);
        leave(draft);
        draft.freed |= !draft.is_out();
        draft.note_state("cleared by an operator");
    }
    Reply::Done
}

/// A claim is given up: a prepare that runs is stopped, and the device is reset.
pub(super) fn give_up_claim(draft: &mut Draft<'_>, request: &RequestId, reason: &str) -> Option<(super::Waiter, bool)> {
    let claim = draft.device.claim().filter(|claim| claim.request() == Some(request))?.clone();
    let Claimant::Waiter { waiter, stored } = claim.claimant else { return None };
    after_use(draft, claim.of, false, reason);
    Some((*waiter, stored))
}

fn set_work(draft: &mut Draft<'_>, work: Work) {
    if draft.device.work != work {
        let at = draft.around.now.wall;
        draft.push(Change::Device(DeviceChange::Work { work, at }));
    }
}

fn set_failure(draft: &mut Draft<'_>, failure: Option<Arc<HookFailure>>) {
    if draft.device.failure != failure {
        draft.push(Change::Device(DeviceChange::Failure(failure)));
    }
}

/// A hook has done what it should: its last failure is history. That of another kind is still of interest, such as that of the
/// prepare before a reset.
fn succeeded(draft: &mut Draft<'_>, hook: HookKind) {
    if draft.device.failure.as_ref().is_some_and(|failure| failure.hook == hook) {
        set_failure(draft, None);
    }
}

fn set_health(draft: &mut Draft<'_>, health: Health) {
    if draft.device.health != health {
        draft.push(Change::Device(DeviceChange::Health(health)));
    }
}

fn failed(draft: &mut Draft<'_>, failure: HookFailure) -> Arc<str> {
    let why = failure.to_string().into();
    set_failure(draft, Some(Arc::new(failure)));
    why
}

fn tell_holders(draft: &mut Draft<'_>, event: NoticeKind, why: &str) {
    let at = draft.around.now.wall;
    for held in draft.held.clone() {
        let notice = Notice { at, event, message: why.to_owned() };
        draft.push(Change::Noticed { lease: held.lease.id, holder: held.lease.holder, notice });
    }
}
