//! Machines that join over real QUIC, and networks that lose the answer.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth::link::Udp;
use berth::link::join::{JoinError, join};
use berth::model::{Caller, NodeName, NodeRole};
use berth::service::views::Connection;
use berth::trust::roster::NotJoined;
use berth::trust::{Identity, Invitation, JoinerKey, joiner_tls, keep_answer};
use berth::wire::frame;
use berth::wire::join::{JOIN_ALPN, JOIN_PROOF_LABEL, JoinAnswer, JoinAsk};
use quinn::crypto::rustls::QuicClientConfig;

use crate::lab::{GATEWAY, Lab, eventually};
use crate::strangers::{TODAY, dial};

async fn invite(lab: &Lab, name: &str) -> Invitation {
    let name: NodeName = name.parse().unwrap();
    lab.gateway().invite(&Caller::admin(), &name).await.unwrap().invitation.parse().unwrap()
}

/// Joins with the key in `node_dir`.
async fn joined(invitation: &Invitation, node_dir: &Path, udp: &Udp) -> Result<Identity, JoinError> {
    let key = JoinerKey::open(node_dir, false)?;
    let answer = join(invitation, &key, udp).await?;
    let files = keep_answer(invitation, node_dir, &key, &answer.certificate, &answer.authority)?;
    Ok(Identity::load(&files, &invitation.lab, NodeRole::Worker, &invitation.worker)?)
}

fn reason(error: &JoinError) -> &str {
    let JoinError::Refused { reason, .. } = error else { panic!("{error}") };
    reason
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_joined_is_let_in_with_its_key_and_no_other_machine_is() {
    let lab = Lab::start().await;
    let invitation = invite(&lab, "rack-3").await;
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let identity = joined(&invitation, first.path(), &Udp::default()).await.unwrap();
    let refused = joined(&invitation, second.path(), &Udp::default()).await.unwrap_err();
    assert_eq!(reason(&refused), "invitation-spent");
    let link = dial(&lab, &identity, TODAY).await.unwrap();
    assert!(!link.drained);
    let gateway = lab.gateway();
    eventually("it is connected", || async {
        let workers = gateway.workers(&Caller::admin()).await.unwrap();
        let found = workers.into_iter().find(|worker| worker.name.as_str() == "rack-3");
        found.filter(|worker| worker.connection == Connection::Connected)
    })
    .await;
    // Its key is its own: what it joined with brings the same certificate's name again, and the link stays.
    joined(&invitation, first.path(), &Udp::default()).await.unwrap();
    let removed = gateway.remove_worker(&Caller::admin(), &"rack-3".parse().unwrap(), true).await.unwrap();
    assert!(removed.revoked && !removed.message.contains("lab file"), "{removed:?}");
    let closed = tokio::time::timeout(Duration::from_secs(1), link.streams().closed()).await.expect("at once");
    assert!(closed.to_string().contains("its key was revoked"), "{closed}");
    let refused = joined(&invitation, first.path(), &Udp::default()).await.unwrap_err();
    assert_eq!(reason(&refused), "unknown-invitation", "the invitation has gone with the worker");
}

#[tokio::test(start_paused = true)]
async fn two_machines_that_read_one_invitation_at_once_are_one_worker() {
    let lab = Lab::start().await;
    for round in 0..10 {
        let invitation = invite(&lab, &format!("rack-1{round}")).await;
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let udp = Udp::default();
        let both = tokio::join!(joined(&invitation, first.path(), &udp), joined(&invitation, second.path(), &udp));
        let refused = match both {
            (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&refused), "invitation-spent");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invitation_is_good_for_an_hour() {
    let lab = Lab::start().await;
    let (late, early) = (invite(&lab, "rack-3").await, invite(&lab, "rack-4").await);
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lab.clock.step_wall_ms(3_590_000);
    joined(&early, other.path(), &Udp::default()).await.unwrap();
    lab.clock.step_wall_ms(20_000);
    let refused = joined(&late, one.path(), &Udp::default()).await.unwrap_err();
    assert_eq!(reason(&refused), "invitation-expired");
    assert!(refused.to_string().contains("has expired; make another with `berth worker invite rack-3`"), "{refused}");
    joined(&early, other.path(), &Udp::default()).await.expect("its answer may have got lost");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_nothing() {
    let lab = Lab::start().await;
    let invitation = invite(&lab, "rack-3").await;
    let directory = tempfile::tempdir().unwrap();
    let roster = lab.file.state_dir.join("gateway").join("roster.json");
    let (node_dir, udp) = (directory.path().to_owned(), Udp::default());
    let lost = {
        let invitation = invitation.clone();
        tokio::spawn(async move { joined(&invitation, &node_dir, &udp).await })
    };
    eventually("it is spent", || async { std::fs::read_to_string(&roster).unwrap().contains("spentBy").then_some(()) })
        .await;
    // Whatever the gateway sends from here on is lost.
    lab.weather.mute(lab.weather.opened(GATEWAY));
    let lost = lost.await.unwrap();
    lab.weather.clear();
    let again = joined(&invitation, directory.path(), &Udp::default()).await.unwrap();
    assert_eq!(again.name().node, invitation.worker, "after {lost:?}");
    dial(&lab, &again, TODAY).await.unwrap();
}

/// Asks as a machine does whose line was mangled on its way: with whatever there is for a secret.
async fn asked_with(secret: &str, invitation: &Invitation, key: &JoinerKey) -> JoinAnswer {
    let tls = joiner_tls(invitation, JOIN_ALPN).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let to = invitation.address.parse().unwrap();
    let connection = endpoint.connect_with(config, to, "gateway.invalid").unwrap().await.unwrap();
    let mut bound = [0; 32];
    connection.export_keying_material(&mut bound, JOIN_PROOF_LABEL, b"").unwrap();
    let ask = JoinAsk {
        worker: invitation.worker.clone(),
        secret: secret.to_owned(),
        public_key: key.public().to_hex(),
        proof: key.prove(&bound).unwrap(),
    };
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let frame = frame::encode(&ask).unwrap();
    send.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).await.unwrap();
    send.write_all(&frame).await.unwrap();
    let mut length = [0; 4];
    receive.read_exact(&mut length).await.unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    receive.read_exact(&mut frame).await.unwrap();
    frame::decode(&frame).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_does_not_even_look_like_one_counts_as_a_wrong_one() {
    let lab = Lab::start().await;
    let invitation = invite(&lab, "rack-3").await;
    let directory = tempfile::tempdir().unwrap();
    let key = JoinerKey::open(directory.path(), false).unwrap();
    for shown in ["", "bji_", "bji_5", "hunter2", "bji_xyz"] {
        let answer = asked_with(shown, &invitation, &key).await;
        assert!(matches!(&answer, JoinAnswer::Refused { reason, .. } if reason == "wrong-secret"), "{answer:?}");
    }
    let refused = joined(&invitation, directory.path(), &Udp::default()).await.unwrap_err();
    assert_eq!(reason(&refused), NotJoined::Ended.word(), "the right one comes too late");
}
