//! Holds: made, confirmed and given back (SPEC §6).

use std::sync::Arc;
use std::time::Duration;

use super::book::window;
use super::{Around, BookingMove, Calendar, CalendarChange, CalendarReply, Decided, HeldSlot, HoldMove};
use crate::clock::Now;
use crate::model::span::written;
use crate::model::{
    Asker, Booking, BookingId, BookingStatus, Code, Hold, HoldId, HoldStatus, IdempotencyKey, Note, Refusal, Requester,
    Role, Slot, TokenHash, Window,
};

/// A hold that is asked for.
pub(super) struct Wanted {
    pub(super) id: HoldId,
    pub(super) holder: Requester,
    pub(super) slot: Slot,
    pub(super) ttl: Option<Duration>,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) token: TokenHash,
}

/// Holds a slot. The same key and slot again get the same hold and another token.
pub(super) fn hold(calendar: &Calendar, around: &Around<'_>, wanted: Wanted) -> Decided {
    let Wanted { id, holder, slot, ttl, key, token } = wanted;
    let (now, rules) = (around.now, around.rules);
    let ttl = ttl.unwrap_or(rules.hold_ttl);
    if ttl > rules.hold_ttl_max {
        let most = rules.hold_ttl_max;
        let why = format!("a hold lasts at most {} here, {} ms (holds.max_ttl)", written(most), most.as_millis());
        return Err(Refusal::bad_field("ttlMs", why));
    }
    if let Some(known) = key.as_ref().and_then(|key| calendar.hold_under(&holder, key)) {
        return reissued(known, slot, token, now);
    }
    let window = window(slot, around)?;
    if !rules.holds_enabled || around.holds_paused || calendar.holds_paused {
        return Err(holds_are_paused());
    }
    if calendar.claims_over(window).next().is_some() {
        return Err(hold_conflict());
    }
    if !calendar.has_room_for(1, rules.bookings_max, around.now.wall) {
        return Err(super::book::full(around));
    }
    let hold = Arc::new(Hold {
        id,
        resource_id: around.resource.clone(),
        holder,
        window,
        status: HoldStatus::Active,
        ttl,
        key,
        token,
        booking: None,
        created_at: now.wall,
        settled_at: None,
    });
    let deadline = now.run + ttl;
    let expires_at = now.wall_at(deadline);
    let change = CalendarChange::Hold { hold: hold.clone(), what: HoldMove::Created, deadline, expires_at };
    Ok((vec![change], CalendarReply::Hold(HeldSlot { hold, deadline, expires_at })))
}

/// The same hold with another token; the former one is dead.
fn reissued(known: &HeldSlot, slot: Slot, token: TokenHash, now: Now) -> Decided {
    let ends_at = match slot.length {
        crate::model::SlotLength::Lasting(width) => slot.starts_at.checked_add(width).ok(),
        crate::model::SlotLength::Until(ends_at) => Some(ends_at),
    };
    if ends_at.and_then(|ends_at| Window::new(slot.starts_at, ends_at)) != Some(known.hold.window) {
        return Err(other_slot());
    }
    let hold = Arc::new(Hold { token, ..known.hold.as_ref().clone() });
    let (deadline, expires_at) = (known.deadline, now.wall_at(known.deadline));
    let change = CalendarChange::Hold { hold: hold.clone(), what: HoldMove::Reissued, deadline, expires_at };
    Ok((vec![change], CalendarReply::Hold(HeldSlot { hold, deadline, expires_at })))
}

/// Turns a hold into a booking of its holder, for whoever shows the token.
pub(super) fn confirm(
    calendar: &Calendar,
    around: &Around<'_>,
    id: &HoldId,
    token: &TokenHash,
    booking: BookingId,
    full: bool,
    note: Option<Note>,
) -> Decided {
    let held = calendar.hold(id).ok_or_else(|| unknown_hold(id))?;
    let hold = &held.hold;
    if hold.token != *token {
        return Err(wrong_token(id));
    }
    match (hold.status, &hold.booking) {
        (HoldStatus::Active, _) => {}
        (HoldStatus::Confirmed, Some(made)) => {
            let made = calendar.booking(made).ok_or_else(|| super::unknown_booking(made))?;
            return Ok((Vec::new(), CalendarReply::Booking(made.clone())));
        }
        (status, _) => return Err(is_over(id, status)),
    }
    if hold.window.is_over(around.now.wall) {
        let message = format!("the slot of hold {id} is over; book another");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    if full {
        return Err(too_many_bookings());
    }
    let made = Arc::new(Booking {
        id: booking.clone(),
        resource_id: hold.resource_id.clone(),
        holder: hold.holder.clone(),
        window: hold.window,
        status: BookingStatus::Scheduled,
        claims: true,
        note,
        lease_id: None,
        series: None,
        created_at: around.now.wall,
        settled_at: None,
    });
    let confirmed = Arc::new(Hold { booking: Some(booking), ..hold.as_ref().clone() });
    let confirmed = settled(&HeldSlot { hold: confirmed, ..held.clone() }, HoldMove::Confirmed, around.now);
    let created = CalendarChange::Booking { booking: made.clone(), what: BookingMove::Created };
    Ok((vec![confirmed, created], CalendarReply::Booking(made)))
}

/// Gives a hold back, for whoever shows the token, or an admin.
pub(super) fn release(
    calendar: &Calendar,
    around: &Around<'_>,
    id: &HoldId,
    token: Option<TokenHash>,
    asker: &Asker,
) -> Decided {
    let held = calendar.hold(id).ok_or_else(|| unknown_hold(id))?;
    let shown = token.is_some_and(|token| token == held.hold.token);
    if !shown && (asker.role != Role::Admin || token.is_some()) {
        return Err(wrong_token(id));
    }
    match (held.hold.status, &held.hold.booking) {
        (HoldStatus::Active, _) => {
            let change = settled(held, HoldMove::Released { by_admin: !shown }, around.now);
            let CalendarChange::Hold { hold, deadline, expires_at, .. } = &change else {
                unreachable!("it is one of a hold")
            };
            let reply =
                CalendarReply::Hold(HeldSlot { hold: hold.clone(), deadline: *deadline, expires_at: *expires_at });
            Ok((vec![change], reply))
        }
        (HoldStatus::Confirmed, Some(booking)) => {
            let message = format!("hold {id} has become booking {booking}; cancel that");
            Err(Refusal::new(Code::HoldExpired, message).with("bookingId", booking.as_str()))
        }
        // It is gone, as was wanted.
        _ => Ok((Vec::new(), CalendarReply::Hold(held.clone()))),
    }
}

/// The end of a hold.
pub(super) fn settled(held: &HeldSlot, what: HoldMove, now: Now) -> CalendarChange {
    let status = match what {
        HoldMove::Confirmed => HoldStatus::Confirmed,
        HoldMove::Released { .. } => HoldStatus::Released,
        HoldMove::Expired => HoldStatus::Expired,
        HoldMove::Created | HoldMove::Reissued | HoldMove::Rewritten => held.hold.status,
    };
    let hold = Arc::new(Hold { status, settled_at: Some(now.wall), ..held.hold.as_ref().clone() });
    CalendarChange::Hold { hold, what, deadline: held.deadline, expires_at: now.wall_at(held.deadline) }
}

/// `HOLD_CONFLICT`: the same words for every loser, whoever has won, and by what.
pub fn hold_conflict() -> Refusal {
    Refusal::new(Code::HoldConflict, "the slot cannot be held; choose another, or ask again in some minutes")
}

/// `HOLDS_PAUSED`.
pub fn holds_are_paused() -> Refusal {
    let message = "no new holds are made just now; those there are can be confirmed and released; ask again later";
    Refusal::new(Code::HoldsPaused, message).retry_after(Duration::from_secs(30))
}

/// `UNKNOWN_HOLD`.
pub fn unknown_hold(id: &HoldId) -> Refusal {
    Refusal::new(Code::UnknownHold, format!("no hold {id}; `berth lease holds list RESOURCE` shows yours"))
        .with("holdId", id.as_str())
}

/// `INSUFFICIENT_PERMISSIONS` for a hold of somebody else.
pub fn not_your_hold(id: &HoldId) -> Refusal {
    let message = format!("hold {id} is not yours; only its holder or an admin may read it");
    Refusal::new(Code::InsufficientPermissions, message)
}

fn wrong_token(id: &HoldId) -> Refusal {
    let message = format!("that is not the token of hold {id}; show the one that was given out last");
    Refusal::new(Code::InsufficientPermissions, message)
}

/// `RATE_LIMITED` for whoever has as many bookings as one may.
pub fn too_many_bookings() -> Refusal {
    let message = "that is as many scheduled bookings as one may have; cancel some first";
    Refusal::new(Code::RateLimited, message).retry_after(Duration::from_secs(60))
}

/// `IDEMPOTENCY_CONFLICT` for a key that stands for another slot.
pub fn other_slot() -> Refusal {
    let message = "the key stands for a hold on another slot; use a new key for this one";
    Refusal::new(Code::IdempotencyConflict, message)
}

fn is_over(id: &HoldId, status: HoldStatus) -> Refusal {
    let message = format!("hold {id} is over ({}); hold the slot again", status.as_str());
    Refusal::new(Code::HoldExpired, message).with("holdId", id.as_str())
}
