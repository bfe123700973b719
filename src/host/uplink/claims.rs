//! What arrives is a claim: only this gateway's own requesters, and only what this worker's rules allow.

use std::time::Duration;

use super::Uplink;
use crate::host::message::Origin;
use crate::limits::BOOKINGS_PER_FRAME_MAX;
use crate::model::{Ask, Door, NodeName, Refusal, Requester, Target, Timeout, Ttl, WaitPolicy};
use crate::wire::calendar::{CalendarAsk, CalendarCall};
use crate::wire::call::{Dispatch, Wait};

impl Uplink {
    /// A dispatch as the desk takes it.
    pub(super) fn checked(&self, dispatch: Dispatch) -> Result<(Ask, Origin), Refusal> {
        let Dispatch {
            request,
            attempt,
            door,
            requester,
            target,
            mode,
            ttl_ms,
            lease_id,
            note,
            key,
            fingerprint,
            allow_shorter,
            admin,
            priority,
            wait,
            ticket,
            left_out,
            not_on,
        } = dispatch;
        of_gateway(&self.gateway, &requester)?;
        if let Target::Resource(address) = &target
            && address.worker.is_some()
        {
            return Err(Refusal::bad_field("target", "a worker takes the bare id of a resource"));
        }
        let ttl = self.bounded(ttl_ms)?;
        let by_name = matches!(target, Target::Resource(_));
        let wait = match (wait, door) {
            (Wait::Never, Door::Acquire) => WaitPolicy::Fail,
            (Wait::Never, Door::Request) => WaitPolicy::NoWait,
            (Wait::Attended { timeout_ms }, Door::Request) if by_name => {
                let timeout = timeout_ms.map(Timeout::try_from).transpose();
                let timeout = timeout.map_err(|error| Refusal::bad_field("wait.attended.timeoutMs", error))?;
                WaitPolicy::Wait { timeout: timeout.map(Timeout::duration) }
            }
            (Wait::Unattended, Door::Acquire) if by_name => WaitPolicy::JoinWaitingRoom,
            _ => {
                let why = "a request by name waits at a worker: attended by door request, unattended by door acquire";
                return Err(Refusal::bad_field("wait", why));
            }
        };
        let id = request;
        let ask = Ask {
            id,
            door,
            requester,
            target,
            mode,
            ttl,
            priority,
            lease_id,
            wait,
            note,
            key,
            ticket,
            allow_shorter,
            by_admin: admin,
            left_out,
        };
        Ok((ask, Origin::Gateway { attempt, fingerprint, not_on }))
    }

    pub(super) fn bounded(&self, ttl_ms: u64) -> Result<Duration, Refusal> {
        let ttl = Ttl::try_from(ttl_ms).map_err(|error| Refusal::bad_field("ttlMs", error))?.duration();
        let longest = self.rules.now().lease.max_ttl;
        if ttl > longest {
            let most = longest.as_millis();
            return Err(Refusal::bad_field("ttlMs", format!("at most {most} on this worker (lease.max_ttl)")));
        }
        Ok(ttl)
    }
}

/// Only this gateway's own requesters ask for calendars, and a page is no longer than what fits a frame.
pub(super) fn fitting(gateway: &NodeName, mut call: CalendarCall) -> Result<CalendarCall, Refusal> {
    of_gateway(gateway, &call.asker.requester)?;
    if let CalendarAsk::Bookings { limit, .. } = &mut call.ask {
        *limit = (*limit).clamp(1, BOOKINGS_PER_FRAME_MAX);
    }
    Ok(call)
}

pub(super) fn of_gateway(gateway: &NodeName, requester: &Requester) -> Result<(), Refusal> {
    if requester.via.as_ref() == Some(gateway) {
        return Ok(());
    }
    let own = requester.through(gateway);
    Err(Refusal::bad_field("requester", format!("this gateway speaks for {own} and the like only")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Asker, BookingFilter, Code, Role};

    #[test]
    fn a_gateway_asks_for_calendars_in_the_name_of_its_own_requesters_only() {
        let call = |requester: &str, limit| CalendarCall {
            asker: Asker { requester: requester.parse().unwrap(), role: Role::Admin },
            ask: CalendarAsk::Bookings { resource: None, filter: BookingFilter::default(), limit },
        };
        let gateway: NodeName = "gateway".parse().unwrap();
        for other in ["admin", "ci/job-1", "gw:gateway-2:admin"] {
            assert_eq!(fitting(&gateway, call(other, 1)).unwrap_err().code, Code::BadRequest, "{other}");
        }
        for (asked, given) in [(0, 1), (7, 7), (usize::MAX, BOOKINGS_PER_FRAME_MAX)] {
            let fits = fitting(&gateway, call("gw:gateway:ci", asked)).unwrap();
            assert!(matches!(fits.ask, CalendarAsk::Bookings { limit, .. } if limit == given), "{fits:?}");
        }
    }
}
