//! Peers that are not what they should be.

use std::path::Path;
use std::time::Duration;

use berth::link::dial::{Dialer, WorkerLink};
use berth::link::{Denial, DialError};
use berth::model::{Caller, NodeName, NodeRole};
use berth::service::views::Connection;
use berth::trust::{Authority, Identity};
use berth::wire::hello::Hello;
use berth::wire::{PROTOCOL, ProtocolRange, ProtocolVersion};

use crate::lab::{Lab, eventually};

pub const TODAY: ProtocolRange = PROTOCOL;
const LATER: ProtocolRange = ProtocolRange { min: ProtocolVersion(7), max: ProtocolVersion(9) };

/// A node's own key and certificate as they lie under `state`, made by the authority there if the node has none.
pub fn identity(state: &Path, lab: &str, role: NodeRole, name: &str) -> Identity {
    let now = berth::clock::Clock::system().now().wall;
    let (lab, name): (_, NodeName) = (lab.parse().unwrap(), name.parse().unwrap());
    let authority = Authority::open(state, &lab, now).unwrap();
    let files = authority.node_files(&state.join(name.as_str()), role, &name, now).unwrap();
    Identity::load(&files, &lab, role, &name).unwrap()
}

/// Dials whoever listens at an address as a gateway of this name.
pub async fn dial_at(address: &str, identity: &Identity, gateway: &str) -> Result<WorkerLink, DialError> {
    let dialer = Dialer::new(identity, &gateway.parse().unwrap(), address, &berth::link::Udp::default()).unwrap();
    let hello = Hello { protocol: TODAY, version: String::new(), run: uuid::Uuid::new_v4(), incarnation: u64::MAX };
    dialer.dial(address, &hello).await
}

/// Dials the lab's gateway.
pub async fn dial(lab: &Lab, identity: &Identity, protocol: ProtocolRange) -> Result<WorkerLink, DialError> {
    let address = lab.file.gateway.as_ref().unwrap().link.to_string();
    let dialer = Dialer::new(identity, &"gateway".parse().unwrap(), &address, &lab.weather.udp()).unwrap();
    let hello = Hello { protocol, version: "9.9.9".to_owned(), run: uuid::Uuid::new_v4(), incarnation: u64::MAX };
    dialer.dial(&address, &hello).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_protocol_version_is_shown_incompatible_and_not_used() {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let rack = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, "rack-1");
    let error = dial(&lab, &rack, LATER).await.unwrap_err();
    let expected = format!("the gateway speaks protocol {TODAY}, this worker 7-9: upgrade the older one");
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, DialError::Incompatible { theirs: TODAY, .. }));
    let gateway = lab.gateway();
    let shown = eventually("it is shown", || async {
        let workers = gateway.workers(&Caller::admin()).await.unwrap();
        workers.into_iter().find(|worker| worker.connection == Connection::Incompatible)
    })
    .await;
    assert_eq!((shown.name.as_str(), shown.protocol.as_deref()), ("rack-1", Some("7-9")));
    // The right one comes back, and is used.
    lab.restart("rack-1").await;
    eventually("the worker is back", || async { lab.acquire("job-1", "pixel", Duration::from_secs(60)).await.ok() })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_on_the_roster_is_told_so() {
    let lab = Lab::start().await;
    let stranger = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, "rack-9");
    let error = dial(&lab, &stranger, TODAY).await.unwrap_err();
    assert!(
        matches!(&error, DialError::Refused(why) if why.contains("rack-9 is not on the gateway's roster")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_another_authority_another_lab_or_another_role_is_not_let_in() {
    let lab = Lab::start().await;
    let (elsewhere, another_lab) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (stranger, why) in [
        (identity(elsewhere.path(), "cluster", NodeRole::Worker, "rack-1"), "its certificate is of another CA"),
        (identity(another_lab.path(), "other", NodeRole::Worker, "rack-1"), "its certificate is of another CA"),
        (identity(&lab.file.state_dir, "cluster", NodeRole::Gateway, "gateway"), "the gateway refuses this worker"),
    ] {
        let error = dial(&lab, &stranger, TODAY).await.unwrap_err();
        let told = Denial::of(&error).map(|denial| denial.to_string()).unwrap_or_default();
        assert!(told.contains(why), "{}: {told:?} of {error:?}", stranger.name());
    }
    let workers = lab.gateway().workers(&Caller::admin()).await.unwrap();
    assert!(workers.iter().all(|worker| worker.connection == Connection::Connected), "nobody was disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_no_other_gateway_for_its_own() {
    let lab = Lab::start().await;
    let rack = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, "rack-1");
    let address = lab.file.gateway.as_ref().unwrap().link.to_string();
    let dialer = Dialer::new(&rack, &"another".parse().unwrap(), &address, &lab.weather.udp()).unwrap();
    let hello = Hello { protocol: TODAY, version: String::new(), run: uuid::Uuid::new_v4(), incarnation: 1 };
    let error = dialer.dial(&address, &hello).await.unwrap_err();
    let told = Denial::of(&error).map(|denial| denial.to_string()).unwrap_or_default();
    assert!(told.contains("not that of this lab's gateway of the configured name"), "{told:?} of {error:?}");
}
