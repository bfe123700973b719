//! Bookings: made, moved and given up (SPEC §5).

use std::sync::Arc;

use jiff::Timestamp;

use super::hold::settled;
use super::{Around, BookingMove, Calendar, CalendarChange, CalendarReply, Claim, ClaimOf, Decided, HoldMove, apply};
use crate::model::span::written;
use crate::model::time::{later, rfc3339};
use crate::model::{
    Asker, Booking, BookingId, BookingStatus, Code, Note, Rebooking, Refusal, Requester, ResourceId, SeriesId, Slot,
    SlotLength, Window,
};

/// Books windows, all of them or none.
pub(super) fn book(
    calendar: &Calendar,
    around: &Around<'_>,
    holder: &Requester,
    windows: &[(BookingId, Slot)],
    series: Option<&SeriesId>,
    note: Option<&Note>,
) -> Decided {
    let now = around.now.wall;
    if !calendar.has_room_for(windows.len(), around.rules.bookings_max, now) {
        return Err(full(around));
    }
    let mut after = calendar.clone();
    let mut changes = Vec::new();
    let mut booked = Vec::new();
    for (id, slot) in windows {
        let window = window(*slot, around)?;
        let own_hold = free_for(&after, around.resource, window, holder, None).map_err(|refusal| {
            // Of a booking that is not there yet nobody has heard.
            let with_itself = booked.iter().any(|booked: &Arc<Booking>| booked.window.overlaps(&window));
            let why = "an occurrence would reach into the next; let it last shorter";
            if with_itself { Refusal::bad_field(windows[0].1.length.field(), why) } else { refusal }
        })?;
        let from = changes.len();
        if let Some(own) = own_hold {
            let mut confirmed = own.hold.as_ref().clone();
            confirmed.booking = Some(id.clone());
            let own = super::HeldSlot { hold: Arc::new(confirmed), ..own };
            changes.push(settled(&own, HoldMove::Confirmed, around.now));
        }
        let booking = Arc::new(Booking {
            id: id.clone(),
            resource_id: around.resource.clone(),
            holder: holder.clone(),
            window,
            status: BookingStatus::Scheduled,
            claims: true,
            note: note.cloned(),
            lease_id: None,
            series: series.cloned(),
            created_at: now,
            settled_at: None,
        });
        booked.push(booking.clone());
        changes.push(CalendarChange::Booking { booking, what: BookingMove::Created });
        changes[from..].iter().cloned().for_each(|change| apply(&mut after, change));
    }
    Ok((changes, CalendarReply::Booked(booked)))
}

/// Gives a booking another window in one step; on a conflict it keeps the one it has.
pub(super) fn reschedule(
    calendar: &Calendar,
    around: &Around<'_>,
    id: &BookingId,
    to: Rebooking,
    asker: &Asker,
) -> Decided {
    let booking = own(calendar, id, asker, "reschedule")?;
    let now = around.now.wall;
    match booking.status {
        BookingStatus::Scheduled if !booking.window.is_over(now) => {}
        BookingStatus::Scheduled => {
            let message = format!("booking {id} is over; book another window");
            return Err(Refusal::new(Code::BadRequest, message));
        }
        status => {
            let message = format!("booking {id} is {status}, and keeps its window; book another");
            return Err(Refusal::new(Code::BadRequest, message));
        }
    }
    let starts_at = to.starts_at.unwrap_or(booking.window.starts_at());
    let length = to.length.unwrap_or(SlotLength::Lasting(booking.window.width()));
    let slot = Slot { starts_at, length };
    // One that runs already may go on from where it began.
    let window = match starts_at == booking.window.starts_at() {
        true => unstarted(slot, around)?,
        false => window(slot, around)?,
    };
    if window.is_over(now) {
        return Err(Refusal::bad_field(length.field(), "lets the booking end in the past; cancel it instead"));
    }
    if window == booking.window {
        return Ok((Vec::new(), CalendarReply::Booking(booking.clone())));
    }
    let hold = free_for(calendar, around.resource, window, &booking.holder, Some(id))?;
    if hold.is_some() {
        // The hold would become a second booking of that slot.
        return Err(slot_held(around.resource));
    }
    let moved = Arc::new(Booking { window, ..booking.as_ref().clone() });
    let what = BookingMove::Rescheduled(booking.window);
    let change = CalendarChange::Booking { booking: moved.clone(), what };
    Ok((vec![change], CalendarReply::Booking(moved)))
}

/// Gives a booking up, and with `following` all later ones of its series.
pub(super) fn cancel(
    calendar: &Calendar,
    around: &Around<'_>,
    id: &BookingId,
    following: bool,
    asker: &Asker,
) -> Decided {
    let booking = own(calendar, id, asker, "cancel")?;
    let now = around.now.wall;
    let stands = |booking: &Booking| booking.status == BookingStatus::Scheduled && !booking.window.is_over(now);
    let by_admin = !asker.owns(&booking.holder);
    let give_up = |booking: &Arc<Booking>| {
        let given_up = Booking {
            status: BookingStatus::Cancelled,
            claims: false,
            settled_at: Some(now),
            ..booking.as_ref().clone()
        };
        Arc::new(given_up)
    };
    let mut later = Vec::new();
    if following && let Some(series) = &booking.series {
        let behind = calendar.bookings.range((booking.window.starts_at(), booking.id.clone())..);
        let rest = behind.map(|(_, it)| it).filter(|it| it.id != *id && it.series.as_ref() == Some(series));
        later.extend(rest.filter(|it| stands(it)).map(give_up));
    }
    let this = match booking.status {
        BookingStatus::Cancelled => booking.clone(),
        _ if stands(booking) => give_up(booking),
        _ if following => booking.clone(),
        BookingStatus::Fulfilled => {
            let lease = booking.lease_id.as_ref().map(ToString::to_string).unwrap_or_default();
            let message = format!("booking {id} is fulfilled; release its lease {lease} instead");
            return Err(Refusal::new(Code::BadRequest, message));
        }
        BookingStatus::Scheduled | BookingStatus::Missed => {
            return Err(Refusal::new(Code::BadRequest, format!("booking {id} is over; there is nothing to cancel")));
        }
    };
    let changed = [&this].into_iter().filter(|it| ***it != **booking).chain(&later);
    let changes =
        changed.map(|it| CalendarChange::Booking { booking: it.clone(), what: BookingMove::Cancelled { by_admin } });
    Ok((changes.collect(), CalendarReply::Cancelled(this.clone(), later)))
}

/// The booking of that name, if it is the asker's to change.
fn own<'a>(calendar: &'a Calendar, id: &BookingId, asker: &Asker, verb: &str) -> Result<&'a Arc<Booking>, Refusal> {
    let booking = calendar.booking(id).ok_or_else(|| unknown_booking(id))?;
    if asker.may_change(&booking.holder) { Ok(booking) } else { Err(not_your_booking(id, verb)) }
}

/// The window that a caller names for something new.
pub(super) fn window(slot: Slot, around: &Around<'_>) -> Result<Window, Refusal> {
    if slot.starts_at < around.now.wall {
        let now = rfc3339(around.now.wall);
        return Err(Refusal::bad_field("startsAt", format!("lies in the past; here it is {now}")));
    }
    unstarted(slot, around)
}

/// The same, wherever it starts.
fn unstarted(slot: Slot, around: &Around<'_>) -> Result<Window, Refusal> {
    let (field, most) = (slot.length.field(), around.rules.max_duration);
    let too_long = || {
        let most = written(most);
        Refusal::bad_field(field, format!("a window lasts at most {most} here (bookings.max_duration)"))
    };
    let ends_at = match slot.length {
        SlotLength::Lasting(width) if width > most => return Err(too_long()),
        SlotLength::Lasting(width) => slot.starts_at.checked_add(width).ok(),
        SlotLength::Until(ends_at) => Some(ends_at),
    };
    let empty = || Refusal::bad_field(field, "leaves an empty window; let it end after it starts");
    let window = ends_at.and_then(|ends_at| Window::new(slot.starts_at, ends_at)).ok_or_else(empty)?;
    if window.width() > most {
        return Err(too_long());
    }
    if window.ends_at() > later(around.now.wall, around.rules.horizon) {
        let most = written(around.rules.horizon);
        let field = if window.starts_at() > later(around.now.wall, around.rules.horizon) { "startsAt" } else { field };
        return Err(Refusal::bad_field(field, format!("at most {most} ahead here (bookings.horizon)")));
    }
    Ok(window)
}

/// Whether `holder` may book a window, besides what `except` has of it. A hold of its own on exactly that slot comes
/// back: it becomes the booking.
///
/// # Errors
/// `BOOKING_CONFLICT` with the first booking that it crosses, else `SLOT_HELD` and nothing about whose.
fn free_for(
    calendar: &Calendar,
    resource: &ResourceId,
    window: Window,
    holder: &Requester,
    except: Option<&BookingId>,
) -> Result<Option<super::HeldSlot>, Refusal> {
    let mut own = None;
    let mut held = false;
    for (starts_at, claim) in calendar.claims_over(window) {
        match &claim.of {
            ClaimOf::Booking(id) if Some(id) == except => {}
            ClaimOf::Booking(id) => return Err(booking_conflict(resource, id)),
            ClaimOf::Hold(id) if is_exactly(*starts_at, claim, window) && claim.holder == *holder => {
                own = calendar.hold(id).cloned();
            }
            ClaimOf::Hold(_) => held = true,
        }
    }
    if held { Err(slot_held(resource)) } else { Ok(own) }
}

fn is_exactly(starts_at: Timestamp, claim: &Claim, window: Window) -> bool {
    starts_at == window.starts_at() && claim.ends_at == window.ends_at()
}

/// `RATE_LIMITED` for a resource whose calendar is full.
pub(super) fn full(around: &Around<'_>) -> Refusal {
    let most = around.rules.bookings_max;
    let message = format!("{} has {most} bookings and holds, as many as there may be", around.resource);
    Refusal::new(Code::RateLimited, message).retry_after(std::time::Duration::from_secs(60))
}

fn booking_conflict(resource: &ResourceId, id: &BookingId) -> Refusal {
    let message = format!(
        "booking {id} has a part of that window; choose another, `berth lease bookings list {resource}` shows what is taken"
    );
    Refusal::new(Code::BookingConflict, message).with("bookingId", id.as_str())
}

/// `BOOKING_CONFLICT` with a booking of which only the database knows.
pub(super) fn taken(resource: &ResourceId) -> Refusal {
    let message = format!("a part of that window of {resource} is booked; choose another");
    Refusal::new(Code::BookingConflict, message)
}

pub(super) fn slot_held(resource: &ResourceId) -> Refusal {
    let message = format!("a part of that window of {resource} is held; choose another, or ask again in some minutes");
    Refusal::new(Code::SlotHeld, message)
}

/// `UNKNOWN_BOOKING`.
pub fn unknown_booking(id: &BookingId) -> Refusal {
    let message = format!("no booking {id}; `berth lease bookings list RESOURCE` shows what there is");
    Refusal::new(Code::UnknownBooking, message).with("bookingId", id.as_str())
}

/// `INSUFFICIENT_PERMISSIONS` for a booking of somebody else.
pub fn not_your_booking(id: &BookingId, verb: &str) -> Refusal {
    let message = format!("booking {id} is not yours; only its holder or an admin may {verb} it");
    Refusal::new(Code::InsufficientPermissions, message)
}
