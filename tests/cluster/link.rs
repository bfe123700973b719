//! The worker's side of the link: how it stands with its gateway, and when it dials again.

use std::time::Duration;

use berth::link::listen::{Greeted, Listener};
use berth::link::{Denial, DialError};
use berth::model::{Caller, NodeRole};
use berth::service::Coordinator;
use berth::service::views::{GatewayConnection, GatewayView};
use berth::wire::hello::Welcome;
use berth::wire::{PROTOCOL, ProtocolRange, ProtocolVersion};

use crate::lab::eventually;
use crate::scripted::Scripted;
use crate::strangers::{dial_at, identity};
use crate::weather::Weather;

async fn shown(worker: &dyn Coordinator) -> GatewayView {
    worker.status(&Caller::admin()).await.unwrap().gateway.expect("a worker with a gateway shows it")
}

async fn becomes(gateway: &Scripted, connection: GatewayConnection) -> GatewayView {
    let worker = gateway.worker();
    eventually("the worker stands so with its gateway", || async {
        Some(shown(&*worker).await).filter(|gateway| gateway.connection == connection)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_worker_shows_how_it_stands_with_its_gateway_since_when_and_why() {
    let mut gateway = Scripted::unlinked(&[]).await;
    let at_first = shown(&*gateway.worker()).await;
    assert_eq!((at_first.name.as_str(), at_first.connection), ("gateway", GatewayConnection::Disconnected));
    gateway.let_in().await;
    let linked = becomes(&gateway, GatewayConnection::Connected).await;
    assert_eq!(linked.reason, None);
    gateway.hang_up();
    let lost = becomes(&gateway, GatewayConnection::Disconnected).await;
    assert!(lost.since >= linked.since && lost.reason.is_some(), "{lost:?}");
    let refused = Welcome::Refused { why: "rack-1 has another key here".to_owned() };
    gateway.knock().await.decline(refused).await.unwrap();
    let refused = becomes(&gateway, GatewayConnection::Refused).await;
    assert!(refused.reason.as_ref().unwrap().contains("rack-1 has another key here"), "{refused:?}");
    let later = ProtocolRange { min: ProtocolVersion(7), max: ProtocolVersion(9) };
    gateway.knock().await.decline(Welcome::Incompatible { protocol: later }).await.unwrap();
    let incompatible = becomes(&gateway, GatewayConnection::Incompatible).await;
    let reason = incompatible.reason.unwrap();
    assert!(reason.contains("7-9") && reason.contains(&PROTOCOL.to_string()), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_incompatible_gateway_is_dialled_at_the_slowest_pace_and_a_lost_link_at_the_fastest() {
    let mut gateway = Scripted::unlinked(&[]).await;
    let later = ProtocolRange { min: ProtocolVersion(7), max: ProtocolVersion(9) };
    let incompatible = Welcome::Incompatible { protocol: later };
    gateway.knock().await.decline(incompatible.clone()).await.unwrap();
    for _ in 0..3 {
        let before = gateway.clock.now().run;
        let guest = gateway.knock().await;
        let pause = gateway.clock.now().run.left(before);
        assert!((Duration::from_millis(2_400)..Duration::from_millis(5_200)).contains(&pause), "{pause:?}");
        guest.decline(incompatible.clone()).await.unwrap();
    }
    gateway.let_in().await;
    becomes(&gateway, GatewayConnection::Connected).await;
    gateway.is_taken().await;
    gateway.hang_up();
    let before = gateway.clock.now().run;
    drop(gateway.knock().await);
    let pause = gateway.clock.now().run.left(before);
    assert!(pause < Duration::from_millis(300), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_refusal_by_certificate_has_its_line_at_the_worker() {
    let gateway = Scripted::start(&[]).await;
    let (elsewhere, another_lab) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = gateway.state_dir().to_owned();
    let worker = |state: &std::path::Path, lab: &str| identity(state, lab, NodeRole::Worker, "rack-1");
    // Whoever is of another CA finds that the gateway is; whoever is no worker is told so by the gateway.
    for (stranger, who, line) in [
        (worker(elsewhere.path(), "cluster"), "this worker refuses the gateway", "of another CA"),
        (worker(another_lab.path(), "other"), "this worker refuses the gateway", "of another CA"),
        (
            identity(&state, "cluster", NodeRole::Gateway, "gateway"),
            "the gateway refuses this worker",
            "of another lab, or no worker's",
        ),
    ] {
        let address = gateway.address();
        let (error, ()) = tokio::join!(dial_at(&address, &stranger, "gateway"), gateway.judge());
        let error = error.unwrap_err();
        let said = Denial::of(&error).unwrap_or_else(|| panic!("no denial: {error:?}")).to_string();
        assert!(said.starts_with(who) && said.contains(line), "{said}");
    }
    // The worker refuses the gateway: another's certificate, and a worker's that answers as the gateway.
    let rack = worker(&state, "cluster");
    for (listening, line) in [
        (identity(elsewhere.path(), "cluster", NodeRole::Gateway, "gateway"), "of another CA"),
        (identity(&state, "cluster", NodeRole::Worker, "rack-2"), "not that of this lab's gateway"),
    ] {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &listening, &Weather::default().udp()).unwrap();
        let address = listener.local_addr().to_string();
        let greeted = async {
            let arriving = listener.accept().await.unwrap();
            let _ = arriving.greet().await;
        };
        let (error, ()) = tokio::join!(dial_at(&address, &rack, "gateway"), greeted);
        let said = Denial::of(&error.unwrap_err()).expect("a denial").to_string();
        assert!(said.starts_with("this worker refuses the gateway") && said.contains(line), "{said}");
    }
    let nobody = dial_at("127.0.0.1:1", &rack, "gateway").await.unwrap_err();
    assert!(matches!(nobody, DialError::Link(_)) && Denial::of(&nobody).is_none());
}

/// Real time and real sockets: a gateway dies without a word, and its successor answers what was meant for it.
#[test]
fn a_worker_notices_at_its_next_packet_that_its_gateway_was_killed_and_started_again() {
    let state = tempfile::tempdir().unwrap();
    let me = identity(state.path(), "cluster", NodeRole::Gateway, "gateway");
    let rack = identity(state.path(), "cluster", NodeRole::Worker, "rack-1");
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (gateway, worker) = (runtime(), runtime());
    let listening = |address: &str| {
        let listener = Listener::bind(address.parse().unwrap(), &me, &berth::link::Udp::default()).unwrap();
        (listener.local_addr().to_string(), listener)
    };
    let _inside = gateway.enter();
    let (address, listener) = listening("127.0.0.1:0");
    drop(_inside);
    let greeting = gateway.spawn(async move {
        let greeted = listener.accept().await.unwrap().greet().await.unwrap();
        let Greeted::Worker(guest) = greeted else { panic!("a worker does not ask to join") };
        let welcome = Welcome::Accepted { protocol: PROTOCOL.max, drained: false, events_after: None };
        let link = guest.welcome(welcome).await.unwrap();
        std::future::pending::<()>().await;
        drop((link, listener));
    });
    let link = worker.block_on(dial_at(&address, &rack, "gateway")).unwrap();
    // With its runtime the process's sockets are gone, and nothing of it is sent any more.
    drop(greeting);
    gateway.shutdown_timeout(Duration::from_secs(5));
    let successor = runtime();
    let _inside = successor.enter();
    let (_, again) = listening(&address);
    drop(_inside);
    let ended = worker.block_on(async { tokio::time::timeout(Duration::from_secs(2), link.streams().closed()).await });
    let why = ended.expect("long before the idle limit of 5 s").to_string();
    assert!(why.contains("reset"), "{why}");
    drop(again);
}
