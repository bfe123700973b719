//! The checks in single cases, as a requester meets them.

use berth::admission::{Admitted, Ledger, Speaker};
use berth::model::{Ask, Code, RequestId, WaitPolicy};
use serde_json::{Value, json};

use crate::sample;

/// A requester with a lease id of its own.
fn asks(requester: &str, lease: Option<&str>, key: Option<&str>) -> Ask {
    let mut ask = sample::ask(RequestId::generate(), requester, "board");
    ask.lease_id = lease.map(sample::text);
    ask.key = key.map(sample::text);
    ask
}

fn admit(ledger: &mut Ledger, ask: &Ask) -> Result<Admitted, Code> {
    ledger.admit(ask, Speaker::Requester, None).map_err(|refusal| refusal.code)
}

#[test]
fn a_second_request_for_an_id_held_by_an_active_lease_fails_with_lease_id_taken() {
    let mut ledger = Ledger::new(1);
    let first = asks("ci", Some("myid"), None);
    admit(&mut ledger, &first).unwrap();
    ledger.grant(&first.id, &sample::text("myid"));
    let refused = ledger.admit(&asks("ops", Some("myid"), None), Speaker::Requester, None).unwrap_err();
    assert_eq!(refused.code, Code::LeaseIdTaken);
    assert_eq!(refused.message, "lease ID myid is already in use");
    assert_eq!(refused.details.map(Value::Object), Some(json!({ "leaseId": "myid" })));
}

#[test]
fn a_second_request_for_an_id_held_by_a_waiting_request_fails_with_lease_id_taken() {
    let mut ledger = Ledger::new(1);
    admit(&mut ledger, &asks("ci", Some("myid"), None)).unwrap();
    assert_eq!(admit(&mut ledger, &asks("ops", Some("myid"), None)), Err(Code::LeaseIdTaken));
}

#[test]
fn upper_and_lower_case_are_two_different_ids() {
    let mut ledger = Ledger::new(1);
    admit(&mut ledger, &asks("ci", Some("myid"), None)).unwrap();
    assert_eq!(admit(&mut ledger, &asks("ops", Some("MyID"), None)), Ok(Admitted::New));
}

#[test]
fn a_requester_that_holds_a_lease_is_already_leased_even_when_it_repeats_its_own_lease_id() {
    let mut ledger = Ledger::new(1);
    let first = asks("ci", Some("myid"), None);
    admit(&mut ledger, &first).unwrap();
    ledger.grant(&first.id, &sample::text("myid"));
    let refused = ledger.admit(&asks("ci", Some("myid"), None), Speaker::Requester, None).unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased);
    assert!(refused.message.contains("berth lease release myid"), "says what to do next: {}", refused.message);
}

#[test]
fn a_retry_with_the_same_key_and_lease_id_gets_the_first_answer() {
    let mut ledger = Ledger::new(1);
    let first = asks("ci", Some("myid"), Some("k"));
    admit(&mut ledger, &first).unwrap();
    assert_eq!(admit(&mut ledger, &asks("ci", Some("myid"), Some("k"))), Ok(Admitted::Replay(first.id)));
}

#[test]
fn a_retry_with_the_same_key_and_another_lease_id_conflicts_also_when_one_side_has_none() {
    for (first, second) in [(Some("myid"), Some("other")), (Some("myid"), None), (None, Some("myid"))] {
        let mut ledger = Ledger::new(1);
        admit(&mut ledger, &asks("ci", first, Some("k"))).unwrap();
        let retry = admit(&mut ledger, &asks("ci", second, Some("k")));
        assert_eq!(retry, Err(Code::IdempotencyConflict), "{first:?} then {second:?}");
    }
}

#[test]
fn an_id_is_accepted_again_once_its_lease_has_ended() {
    let mut ledger = Ledger::new(1);
    let first = asks("ci", Some("myid"), None);
    admit(&mut ledger, &first).unwrap();
    ledger.grant(&first.id, &sample::text("myid"));
    ledger.end(&sample::text("myid"));
    assert_eq!(admit(&mut ledger, &asks("ci", Some("myid"), None)), Ok(Admitted::New));
}

#[test]
fn a_gateway_has_checked_its_own_requesters_and_keys_but_the_worker_checks_the_id() {
    let mut ledger = Ledger::new(1);
    let first = asks("gw:gateway:ci", Some("myid"), Some("k"));
    assert_eq!(ledger.admit(&first, Speaker::Gateway, None), Ok(Admitted::New));
    assert_eq!(ledger.admit(&asks("gw:gateway:ci", None, Some("k")), Speaker::Gateway, None), Ok(Admitted::New));
    let refused = ledger.admit(&asks("gw:gateway:ops", Some("myid"), None), Speaker::Gateway, None).unwrap_err();
    assert_eq!(refused.code, Code::LeaseIdTaken);
}

#[test]
fn an_unattended_waiter_asks_again_through_a_gateway_as_it_does_here() {
    let board = sample::text("board");
    for (requester, speaker) in [("ci", Speaker::Requester), ("gw:gateway:ci", Speaker::Gateway)] {
        let mut ledger = Ledger::new(1);
        let joins = || Ask { wait: WaitPolicy::JoinWaitingRoom, ..asks(requester, Some("myid"), None) };
        let (first, again, third) = (joins(), joins(), joins());
        assert_eq!(ledger.admit(&first, speaker, Some(&board)), Ok(Admitted::New));
        assert_eq!(ledger.admit(&again, speaker, Some(&board)), Ok(Admitted::Behind(first.id.clone())));
        ledger.waits(&first.id, &first.id, first.lease_id.as_ref());
        assert_eq!(ledger.admit(&again, speaker, Some(&board)), Ok(Admitted::Again));
        ledger.waits(&again.id, &first.id, first.lease_id.as_ref());
        assert_eq!(ledger.len(), 1, "it is one entry");
        assert_eq!(ledger.admit(&third, speaker, Some(&board)), Ok(Admitted::Again));
        ledger.refuse(&third.id);
        assert!(ledger.is_empty());
    }
}
