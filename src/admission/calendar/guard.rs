//! What a guard of the database says when it fires, in the words of the check that it repeats (SPEC §6).

use super::book::{slot_held, taken};
use super::hold::hold_conflict;
use super::{BookingMove, CalendarChange, HoldMove};
use crate::model::{Refusal, ResourceId};

/// The guards that a booking may meet before another booking, and before a hold; the rest are a hold's own. A unique
/// index is named by its columns.
const BEFORE_A_BOOKING: [&str; 3] =
    ["no_booking_over_another", "no_booking_moves_over_another", "booking.resource_id, booking.starts_at"];
const BEFORE_A_HOLD: [&str; 2] = ["no_booking_over_a_hold", "no_booking_moves_over_a_hold"];
const OF_A_HOLD: [&str; 3] = ["no_hold_over_another", "no_hold_over_a_booking", "hold.resource_id, hold.starts_at"];

/// The refusal of the check that `detail` repeats, for whoever asked for `change`; none where that is no guard of a slot.
/// Nothing is said of what stands in the way: the calendar does not know it.
pub fn guarded(change: &CalendarChange, detail: &str, resource: &ResourceId) -> Option<Refusal> {
    let is_one_of = |guards: &[&str]| guards.iter().any(|guard| detail.ends_with(guard));
    match change {
        CalendarChange::Hold { what: HoldMove::Created, .. } if is_one_of(&OF_A_HOLD) => Some(hold_conflict()),
        CalendarChange::Booking { what: BookingMove::Created | BookingMove::Rescheduled(_), .. } => {
            if is_one_of(&BEFORE_A_BOOKING) {
                return Some(taken(resource));
            }
            is_one_of(&BEFORE_A_HOLD).then(|| slot_held(resource))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = include_str!("../../store/migrations/0004_bookings_and_holds.sql");

    #[test]
    fn every_guard_of_a_slot_in_the_schema_has_its_words() {
        let triggers = SCHEMA.lines().filter_map(|line| line.strip_prefix("CREATE TRIGGER ")?.split(' ').next());
        let named: Vec<&str> = triggers.collect();
        assert_eq!(named.len(), 8);
        let known = [&BEFORE_A_BOOKING[..], &BEFORE_A_HOLD, &OF_A_HOLD].concat();
        for trigger in named.iter().filter(|trigger| !trigger.starts_with("no_hold_moves")) {
            assert!(known.contains(trigger), "{trigger}");
        }
        for guard in known {
            assert!(named.contains(&guard) || guard.contains('.'), "{guard} is in no schema");
        }
    }
}
