//! What is answered when a guard of the database fires, in the words of the check that it repeats (SPEC §6).

use super::book::{slot_held, taken};
use super::hold::hold_conflict;
use crate::model::{Code, Refusal, ResourceId};

/// The refusal with the code of the check that has been repeated. Nothing is said of what stands in the way: the calendar
/// does not know it.
pub fn guarded(code: Code, resource: &ResourceId) -> Refusal {
    match code {
        Code::BookingConflict => taken(resource),
        Code::SlotHeld => slot_held(resource),
        _ => hold_conflict(),
    }
}
