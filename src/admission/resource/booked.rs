//! What bookings and holds mean for the leases of a resource (SPEC §5).

use super::draft::Draft;
use super::{Change, Reply};
use crate::admission::calendar::{self, CalendarCommand};

/// Something about the calendar itself.
pub(super) fn calendar(draft: &mut Draft<'_>, command: CalendarCommand) -> Reply {
    let around = calendar::Around {
        resource: &draft.around.spec.id,
        rules: draft.around.calendar,
        holds_paused: draft.around.holds_paused,
        now: draft.around.now,
    };
    match calendar::decide(&draft.calendar, &around, command) {
        Ok((changes, reply)) => {
            changes.into_iter().for_each(|change| draft.push(Change::Calendar(change)));
            Reply::Calendar(reply)
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}
