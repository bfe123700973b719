//! Keys and certificates at the gateway's door, over real QUIC, with a peer that says what no right one would.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use berth::link::{DialError, LinkError};
use berth::model::{Caller, Code, NodeName, NodeRole};
use berth::service::views::Connection;
use berth::trust::{Authority, Identity, PkiFiles};
use berth::wire::ALPN;
use berth::wire::join::JOIN_ALPN;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::lab::{Lab, eventually};
use crate::strangers::{TODAY, dial, identity};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Takes anybody for the gateway.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Connects with these files, or with none, and waits until the gateway has closed the connection: why it did.
async fn sent_away(lab: &Lab, files: Option<&PkiFiles>, alpn: &[u8]) -> String {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    let mut tls = match files {
        None => tls.with_no_client_auth(),
        Some(files) => {
            let certificate = CertificateDer::from_pem_file(&files.cert).unwrap();
            tls.with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_file(&files.key).unwrap()).unwrap()
        }
    };
    tls.alpn_protocols = vec![alpn.to_vec()];
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let endpoint = quinn::Endpoint::client(any).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let to = lab.file.gateway.as_ref().unwrap().link;
    let connected = endpoint.connect_with(config, to, "gateway.invalid").unwrap().await;
    let ended = match connected {
        Err(error) => error,
        Ok(connection) => connection.closed().await,
    };
    LinkError::from(ended).why()
}

fn authority(lab: &Lab) -> Authority {
    let now = berth::clock::Clock::system().now().wall;
    Authority::open(&lab.file.state_dir, &lab.file.name, now).unwrap()
}

/// Another key that the lab's own authority has certified for a name.
fn another_key(lab: &Lab, name: &str) -> Identity {
    let now = berth::clock::Clock::system().now().wall;
    let name: NodeName = name.parse().unwrap();
    let directory = lab.file.state_dir.join("thief");
    let files = authority(lab).node_files(&directory, NodeRole::Worker, &name, now).unwrap();
    Identity::load(&files, &lab.file.name, NodeRole::Worker, &name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn another_key_for_a_known_name_is_refused_until_the_name_s_own_key_is_revoked() {
    let mut lab = Lab::start().await;
    let thief = another_key(&lab, "rack-1");
    let error = dial(&lab, &thief, TODAY).await.unwrap_err();
    assert!(
        matches!(&error, DialError::Refused(why) if why.contains("worker rack-1 is known by another key")),
        "{error}"
    );
    let gateway = lab.gateway();
    let rack = "rack-1".parse().unwrap();
    let connected = || async {
        let workers = gateway.workers(&Caller::admin()).await.unwrap();
        workers.into_iter().find(|worker| worker.name == rack).map(|worker| worker.connection)
    };
    assert_eq!(connected().await, Some(Connection::Connected), "the right one was not disturbed");
    // Also after a restart of the gateway, while the right one is away.
    lab.stop("rack-1").await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    let error = dial(&lab, &thief, TODAY).await.unwrap_err();
    assert!(matches!(&error, DialError::Refused(why) if why.contains("known by another key")), "{error}");
    let gateway = lab.gateway();
    gateway.remove_worker(&Caller::admin(), &rack, true).await.unwrap();
    // The lab file still names it, so that the next start takes its next key for its own.
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    let own = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, "rack-1");
    let error = dial(&lab, &own, TODAY).await.unwrap_err();
    assert!(matches!(&error, DialError::Refused(why) if why.contains("is revoked")), "{error}");
    dial(&lab, &thief, TODAY).await.expect("another key may take the name");
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_certificate_with_an_expired_one_or_of_no_known_protocol_is_sent_away_with_the_reason() {
    let lab = Lab::start().await;
    let past = "2001-01-01T00:00:00Z".parse().unwrap();
    let directory = lab.file.state_dir.join("late");
    let name = "rack-1".parse().unwrap();
    let expired = authority(&lab).node_files(&directory, NodeRole::Worker, &name, past).unwrap();
    let own = lab.file.state_dir.join("rack-1");
    let own = PkiFiles { ca: own.join("ca.crt"), cert: own.join("node.crt"), key: own.join("node.key") };
    for (files, alpn, why) in [
        (None, ALPN, "a worker shows a certificate of the lab; `berth join` gets one"),
        (Some(&expired), ALPN, "its certificate has expired, or is not valid yet"),
        (Some(&expired), JOIN_ALPN, "its certificate has expired, or is not valid yet"),
        (Some(&own), &b"berth/9"[..], "peer doesn't support any known protocol"),
        (None, &b"h3"[..], "peer doesn't support any known protocol"),
    ] {
        let said = sent_away(&lab, files, alpn).await;
        assert!(said.contains(why), "{said:?} lacks {why:?}");
    }
    let workers = lab.gateway().workers(&Caller::admin()).await.unwrap();
    assert!(workers.iter().all(|worker| worker.connection == Connection::Connected), "nobody was disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_worker_is_cut_off_at_once_and_what_it_held_is_free() {
    let lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", Duration::from_secs(600)).await.unwrap();
    let gateway = lab.gateway();
    let rack = "rack-1".parse().unwrap();
    gateway.remove_worker(&Caller::admin(), &rack, true).await.unwrap();
    let refused = lab.renew(&lease.id).await.unwrap_err();
    assert_eq!(refused.code, Code::UnknownLease, "{refused}");
    assert!(refused.details.as_ref().is_none_or(|details| !details.contains_key("rebuilding")), "{refused:?}");
    let refused = lab.acquire("job-1", "pixel", Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(refused.code, Code::UnknownResource, "its requester is free, its resource is gone: {refused}");
    let workers = gateway.workers(&Caller::admin()).await.unwrap();
    assert!(workers.iter().all(|worker| worker.name != rack));
    let readiness = gateway.readiness().await;
    assert_eq!(readiness.workers.map(|counts| (counts.configured, counts.reported)), Some((1, 1)));
    assert_eq!(gateway.remove_worker(&Caller::admin(), &rack, true).await.unwrap_err().code, Code::UnknownWorker);
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_is_out_at_a_worker_goes_back_to_the_queue_with_its_removal() {
    let lab = Lab::start().await;
    let gateway = lab.gateway();
    // Its answers do not come, so the request is out there.
    lab.weather.mute(lab.weather.opened(crate::lab::RACK_1));
    let ask = crate::lab::request("job-1", "platform=android", None);
    let id = ask.id.clone();
    let waiting = gateway.request(&Caller::admin(), ask, Duration::from_millis(300)).await.unwrap();
    assert_eq!(waiting.state, berth::service::views::RequestState::Waiting);
    gateway.remove_worker(&Caller::admin(), &"rack-1".parse().unwrap(), true).await.unwrap();
    let ended = eventually("it ends", || async {
        let request = gateway.lease_request(&Caller::admin(), &id, Duration::ZERO).await.unwrap();
        request.error
    })
    .await;
    assert_eq!(ended.code, Code::NoMatchingResource, "nobody is left who has one: {ended}");
}
