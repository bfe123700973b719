//! What a worker relays of its own events, taken as a claim and put into this gateway's names (SPEC §9 Operators). Pure.
//!
//! A worker tells of its own resources and clients, and of what it did for this gateway's requesters. It does not tell of the
//! lab's workers, which is the gateway's to tell, nor how a request of this gateway's came in, waits or ends: that story
//! is told once, here. So of those requests its `lease.requested`, `lease.queued` and `lease.rejected` are left out, while its
//! `lease.declined` and everything about the leases themselves are kept.

use serde_json::{Map, Value, json};

use super::calendar::names;
use crate::limits::{EVENT_PAYLOAD_BYTES_MAX, EVENT_PAYLOAD_DEPTH_MAX, EVENTS_PER_PAGE_MAX};
use crate::model::{BookingId, EventKind, HoldId, LeaseId, NodeName, RequestId, Requester, SeriesId};
use crate::store::RelayedEvent;
use crate::wire::events::{EventRow, EventsPage};

/// A page in this gateway's names, but for those of its leases.
#[derive(Debug)]
pub struct Claimed {
    /// The number of its last event in the worker's log.
    pub upto: u64,
    /// What is of interest, in its order.
    pub events: Vec<Claim>,
}

/// One event. Its lease has the worker's own name yet.
#[derive(Debug)]
pub struct Claim {
    /// The event.
    pub event: RelayedEvent,
    /// The request of this gateway's that it is about, if it says so.
    pub request: Option<RequestId>,
}

/// What is kept of a page of `worker`'s.
///
/// # Errors
/// When the page is none: it is empty or too long, or its numbers do not grow.
pub fn claimed(page: EventsPage, worker: &NodeName, gateway: &NodeName) -> Result<Claimed, &'static str> {
    let Some(upto) = page.events.last().map(|row| row.seq) else { return Err("a page of no events") };
    if page.events.len() > EVENTS_PER_PAGE_MAX {
        return Err("a page of too many events");
    }
    let grows = page.events.is_sorted_by(|one, next| one.seq < next.seq);
    if !grows || i64::try_from(upto).is_err() {
        return Err("the numbers of a page of events do not grow");
    }
    let keep = |row: EventRow| {
        let (id, event) = (row.id.clone(), row.event.clone());
        let kept = claim(row, worker, gateway);
        if let Err(why) = &kept {
            tracing::debug!(%worker, %id, event, why, "an event of a worker's is left out");
        }
        kept.ok()
    };
    Ok(Claimed { upto, events: page.events.into_iter().filter_map(keep).collect() })
}

fn claim(row: EventRow, worker: &NodeName, gateway: &NodeName) -> Result<Claim, &'static str> {
    let EventRow { id, seq, at, event, owner, payload } = row;
    let kind: EventKind = event.parse().map_err(|_| "of a kind that is not known here")?;
    if is_of_a_gateway(kind) {
        return Err("only a gateway tells of this");
    }
    let mut payload = bounded(payload);
    payload.retain(|field, _| is_field(kind, field));
    let requester = match payload.get("requester") {
        Some(said) => {
            Some(said.as_str().and_then(|said| said.parse::<Requester>().ok()).ok_or("its requester is none")?)
        }
        None => owner,
    };
    let ours = requester.as_ref().is_some_and(|requester| requester.via.as_ref() == Some(gateway));
    // One that says nothing of whom it is about is about a request of a gateway's.
    if is_of_a_request(kind) && (ours || requester.is_none()) {
        return Err("how a request of this gateway's goes is told here");
    }
    if let (true, Some(requester)) = (payload.contains_key("requester"), &requester) {
        let shown = if ours { requester.bare() } else { requester.clone() };
        payload.insert("requester".to_owned(), shown.to_string().into());
    }
    renamed(&mut payload, "bookingId", |id: BookingId| id.through(worker).map(Into::into))?;
    renamed(&mut payload, "seriesId", |id: SeriesId| id.through(worker).map(Into::into))?;
    renamed(&mut payload, "holdId", |id: HoldId| id.through(worker).map(Into::into))?;
    for field in ["detail", "reason"] {
        if let Some(said) = text(&payload, field)? {
            let said = names::renamed(said, worker);
            payload.insert(field.to_owned(), said.into());
        }
    }
    let lease = text(&payload, "leaseId")?.map(str::parse::<LeaseId>).transpose().map_err(|_| "its lease is none")?;
    let request = text(&payload, "requestId")?.map(str::parse::<RequestId>).transpose();
    let request = request.map_err(|_| "its request is none")?;
    let owner = requester.filter(|_| ours).map(|requester| requester.principal);
    let event = RelayedEvent { id, seq, at, kind, owner, lease, payload };
    Ok(Claim { event, request: request.filter(|_| ours) })
}

/// True for what only a gateway says.
fn is_of_a_gateway(kind: EventKind) -> bool {
    kind.as_str().starts_with("worker.") || kind.as_str().starts_with("request.")
}

/// True for the story of a lease request. (What a lease does, and `lease.declined`, is of whoever has the resource.)
fn is_of_a_request(kind: EventKind) -> bool {
    matches!(kind, EventKind::LeaseRequested | EventKind::LeaseQueued | EventKind::LeaseRejected)
}

fn is_field(kind: EventKind, field: &str) -> bool {
    field == "truncated" || kind.fields().iter().any(|known| known.trim_end_matches('?') == field)
}

/// The facts, if they are not too many and not too deep.
fn bounded(payload: Map<String, Value>) -> Map<String, Value> {
    let deep = payload.values().any(|value| depth(value) >= EVENT_PAYLOAD_DEPTH_MAX);
    let length = serde_json::to_string(&payload).map_or(usize::MAX, |text| text.len());
    if !deep && length <= EVENT_PAYLOAD_BYTES_MAX {
        return payload;
    }
    let mut short = Map::new();
    short.insert("truncated".to_owned(), json!(true));
    short
}

/// How deep a value is nested; a frame has bounded it.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn text<'p>(payload: &'p Map<String, Value>, field: &str) -> Result<Option<&'p str>, &'static str> {
    match payload.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err("one of its names is no text"),
    }
}

fn renamed<T: std::str::FromStr>(
    payload: &mut Map<String, Value>,
    field: &str,
    name: impl FnOnce(T) -> Option<String>,
) -> Result<(), &'static str> {
    let Some(said) = text(payload, field)? else { return Ok(()) };
    let named = said.parse().ok().and_then(name).ok_or("one of its names is none of a worker's own")?;
    payload.insert(field.to_owned(), named.into());
    Ok(())
}

/// What `worker`'s lease is called here, as far as its id tells: one that a requester can have chosen is bare, unless it
/// looks like one that a worker makes.
pub fn lease_named(worker: &NodeName, lease: &LeaseId) -> LeaseId {
    let made = lease.as_str().strip_prefix("lse_").is_some_and(|rest| uuid::Uuid::try_parse(rest).is_ok());
    match lease.as_chosen() {
        Some(chosen) if !made => chosen.into(),
        _ => LeaseId::through(worker, lease),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EventId;

    fn rack() -> NodeName {
        "rack-1".parse().unwrap()
    }

    fn row(seq: u64, event: &str, owner: Option<&str>, payload: Value) -> EventRow {
        EventRow {
            id: EventId::generate(),
            seq,
            at: jiff::Timestamp::UNIX_EPOCH,
            event: event.to_owned(),
            owner: owner.map(|owner| owner.parse().unwrap()),
            payload: payload.as_object().unwrap().clone(),
        }
    }

    fn kept(event: &str, owner: Option<&str>, payload: Value) -> Option<Claim> {
        let page = EventsPage { events: vec![row(1, event, owner, payload)] };
        let Claimed { upto, mut events } = claimed(page, &rack(), &"gateway".parse().unwrap()).unwrap();
        assert_eq!(upto, 1, "what is left out is acknowledged all the same");
        events.pop()
    }

    #[test]
    fn a_worker_does_not_speak_for_the_gateway() {
        for kind in EventKind::ALL.iter().filter(|kind| is_of_a_gateway(**kind)) {
            assert!(kept(kind.as_str(), None, json!({ "worker": "rack-2", "requestId": "x" })).is_none(), "{kind}");
        }
        assert!(kept("lease.teleported", None, json!({})).is_none(), "nor of what is not known here");
    }

    #[test]
    fn the_story_of_a_fleet_request_is_told_by_the_gateway_and_that_of_a_local_one_by_its_worker() {
        let about = |requester: &str| json!({ "requester": requester, "requestId": RequestId::generate().as_str() });
        for kind in ["lease.requested", "lease.rejected"] {
            assert!(kept(kind, None, about("gw:gateway:ci/job-1")).is_none(), "{kind}");
            assert_eq!(kept(kind, None, about("ci")).unwrap().event.payload["requester"], "ci");
            assert!(kept(kind, None, json!({ "truncated": true })).is_none(), "{kind} of whom nobody knows");
        }
        let place = json!({ "requestId": RequestId::generate().as_str(), "position": 1 });
        assert!(kept("lease.queued", None, place.clone()).is_none(), "one of a gateway's has no owner on a worker");
        assert!(kept("lease.queued", Some("ci"), place).is_some());
        assert!(
            kept("lease.declined", None, about("gw:gateway:ci")).is_some(),
            "what the worker did is its own to tell"
        );
    }

    #[test]
    fn requesters_of_this_gateway_own_what_is_about_them_and_nobody_else_does() {
        for (requester, shown, owner) in [
            ("gw:gateway:ci/job-1", "ci/job-1", Some("ci")),
            ("ci/job-1", "ci/job-1", None),
            ("gw:another:ci", "gw:another:ci", None),
        ] {
            let Claim { event, .. } = kept("lease.released", None, json!({ "requester": requester })).unwrap();
            assert_eq!(event.payload["requester"], shown);
            assert_eq!(event.owner.as_ref().map(|owner| owner.as_str()), owner, "{requester}");
        }
        assert!(kept("lease.released", None, json!({ "requester": "gw:" })).is_none());
        assert!(kept("lease.released", None, json!({ "requester": 7 })).is_none());
    }

    #[test]
    fn bookings_and_holds_have_their_workers_name_in_front() {
        let (booking, hold) = (BookingId::generate(), HoldId::generate());
        let about = json!({ "holdId": hold.as_str(), "bookingId": booking.as_str(), "requester": "ci" });
        let Claim { event, .. } = kept("hold.confirmed", None, about).unwrap();
        assert_eq!(event.payload["holdId"], format!("rack-1.{hold}"));
        assert_eq!(event.payload["bookingId"], format!("rack-1.{booking}"));
        let detail = json!({ "resourceId": "board", "detail": format!("booking {booking} overlaps hold {hold}") });
        let Claim { event, .. } = kept("invariant.violated", None, detail).unwrap();
        assert_eq!(event.payload["detail"], format!("booking rack-1.{booking} overlaps hold rack-1.{hold}"));
        let of_another = json!({ "holdId": format!("rack-2.{hold}") });
        assert!(kept("hold.expired", None, of_another).is_none(), "a worker does not speak for another");
    }

    #[test]
    fn facts_are_bounded_and_only_those_that_the_kind_has() {
        let Claim { event, .. } = kept("node.started", None, json!({ "version": "1", "more": 1 })).unwrap();
        assert_eq!(Value::Object(event.payload), json!({ "version": "1" }));
        let mut deep = json!(1);
        for _ in 0..=EVENT_PAYLOAD_DEPTH_MAX {
            deep = json!([deep]);
        }
        for payload in [json!({ "version": deep }), json!({ "version": "x".repeat(EVENT_PAYLOAD_BYTES_MAX) })] {
            let Claim { event, .. } = kept("node.started", None, payload).unwrap();
            assert_eq!(Value::Object(event.payload), json!({ "truncated": true }));
        }
    }

    #[test]
    fn a_page_that_is_none_breaks_the_protocol() {
        let gateway = "gateway".parse().unwrap();
        let page = |seqs: &[u64]| {
            let events = seqs.iter().map(|seq| row(*seq, "node.stopping", None, json!({}))).collect();
            claimed(EventsPage { events }, &rack(), &gateway).map(|page| page.upto)
        };
        assert_eq!(page(&[3, 7]), Ok(7));
        let too_many: Vec<u64> = (1..=EVENTS_PER_PAGE_MAX as u64 + 1).collect();
        for seqs in [&[][..], &[3, 3], &[4, 3], &[u64::MAX], &too_many] {
            assert!(page(seqs).is_err(), "{seqs:?}");
        }
    }

    #[test]
    fn a_lease_id_that_a_worker_made_has_its_name_in_front_and_a_chosen_one_has_not() {
        let named = |id: &str| lease_named(&rack(), &id.parse().unwrap()).to_string();
        let made = LeaseId::generate();
        assert_eq!(named(made.as_str()), format!("rack-1.{made}"));
        assert_eq!(named("ad-7f3a"), "ad-7f3a");
        assert_eq!(named("lse_123"), "lse_123");
        assert_eq!(named("w1.x"), "rack-1.w1.x", "no requester can choose it");
    }
}
