use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::Calendars;
use crate::admission::ticket::TicketKey;
use crate::clock::Clock;
use crate::driver::Guard;
use crate::host::exec::ExecDoor;
use crate::host::message::{DeskMessage, Findings, Said};
use crate::model::{Caller, Code, Role};
use crate::service::{Coordinator, HostService};
use crate::store::Store;
use crate::wire::calendar::CalendarAnswer;

/// A desk that complains as it is told, and answers about the holds of `pixel` only.
struct Desk;

impl Actor for Desk {
    type Msg = DeskMessage;
    type State = Vec<String>;
    type Arguments = Vec<String>;

    async fn pre_start(
        &self,
        _: ActorRef<DeskMessage>,
        complaints: Vec<String>,
    ) -> Result<Vec<String>, ActorProcessingErr> {
        Ok(complaints)
    }

    async fn handle(
        &self,
        _: ActorRef<DeskMessage>,
        message: DeskMessage,
        complaints: &mut Vec<String>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Complaints(reply) => drop(reply.send(complaints.clone())),
            DeskMessage::Check(reply) => {
                let _ = reply.send(Ok(Findings { violations: complaints.clone(), holds_paused: true }));
            }
            DeskMessage::Calendar(call, reply) => match call.ask.resource() {
                Some(id) if id.as_str() == "pixel" => {
                    let _ = reply.send(Said { result: Ok(CalendarAnswer::Holds(Vec::new())), number: 0 });
                }
                // It goes without an answer.
                _ => drop(reply),
            },
            other => panic!("nothing asks {other:?}"),
        }
        Ok(())
    }
}

async fn service(complaints: &[&str]) -> (HostService, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (_, events, ..) = Store::open(&directory.path().join("berth.db"), clock.now()).unwrap();
    let complaints = complaints.iter().map(ToString::to_string).collect();
    let (desk, _) = Actor::spawn(None, Desk, complaints).await.unwrap();
    let tickets = Arc::new(TicketKey::new(&[7; 32]));
    let execs = ExecDoor { desk: desk.clone(), guard: Guard::new("berth") };
    (HostService::new(desk, events, tickets, "rack-1".parse().unwrap(), clock, execs), directory)
}

#[tokio::test]
async fn what_the_desk_complains_of_makes_the_node_unready() {
    let (service, _directory) = service(&[]).await;
    assert!(service.readiness().await.ready);
    let doctor = service.doctor(&Caller::admin()).await.unwrap();
    assert!(doctor.ok && doctor.holds_paused && doctor.violations.is_empty(), "a pause alone is nothing wrong");
    let agent = Caller { principal: "ci".parse().unwrap(), role: Role::Agent };
    assert_eq!(service.doctor(&agent).await.unwrap_err().code, Code::InsufficientPermissions);
}

#[tokio::test]
async fn a_node_with_complaints_says_them_to_whoever_asks_whether_it_is_ready() {
    let (service, _directory) = service(&["two bookings of pixel overlap"]).await;
    let readiness = service.readiness().await;
    assert_eq!((readiness.ready, readiness.reasons), (false, vec!["two bookings of pixel overlap".to_owned()]));
    let doctor = service.doctor(&Caller::admin()).await.unwrap();
    assert_eq!((doctor.ok, doctor.violations), (false, vec!["two bookings of pixel overlap".to_owned()]));
}

#[tokio::test]
async fn a_resource_is_asked_for_by_its_own_workers_name_or_by_none() {
    let (service, _directory) = service(&[]).await;
    for address in ["pixel", "rack-1/pixel"] {
        assert!(service.holds(&Caller::admin(), address.parse().unwrap()).await.unwrap().holds.is_empty());
    }
    let refused = service.holds(&Caller::admin(), "rack-2/pixel".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.code, Code::UnknownResource);
    assert_eq!(refused.details.unwrap()["resourceId"], "rack-2/pixel");
}

#[tokio::test]
async fn of_a_call_that_got_no_answer_nobody_knows_whether_it_was_done() {
    let (service, _directory) = service(&[]).await;
    let lost = service.pause_holds(&Caller::admin(), Some("board".parse().unwrap()), true).await.unwrap_err();
    assert_eq!(lost.code, Code::Internal);
    assert!(lost.message.contains("nobody knows"), "{lost}");
}
