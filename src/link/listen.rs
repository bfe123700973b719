//! The gateway's end of a link.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn_proto::HashedConnectionIdGenerator;
use tokio::time::timeout;

use super::ask::Asker;
use super::endpoint::transport;
use super::stream::{FrameReader, FrameWriter, read, reader, write, writer};
use super::{LinkError, Udp};
use crate::model::NodeName;
use crate::trust::{Identity, PeerName};
use crate::wire::ALPN;
use crate::wire::hello::{Hello, Welcome};

/// A worker has this long from its first packet to the end of its `Hello`.
const GREETING_BOUND: Duration = Duration::from_secs(5);
/// Handshakes that are under way at once; more are dropped, and their worker dials again.
const ARRIVING_MAX: usize = 1_024;
/// The longest version text in a `Hello`.
const VERSION_CHARS_MAX: usize = 64;

/// The gateway's UDP port.
#[derive(Debug)]
pub struct Listener {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
}

impl Listener {
    /// Opens the port.
    ///
    /// The keys for stateless resets and for connection ids are derived from the node's key, both of them: only
    /// then does a worker of the last run learn at its next packet that this gateway has started anew.
    pub fn bind(address: SocketAddr, identity: &Identity, udp: &Udp) -> Result<Self, LinkError> {
        let tls = QuicServerConfig::try_from(identity.server_tls(&[ALPN])?)
            .map_err(|error| LinkError::Protocol(error.to_string()))?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls));
        server.transport_config(transport());
        let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &identity.derive("stateless reset"));
        let mut config = quinn::EndpointConfig::new(Arc::new(reset));
        let mut seed = [0; 8];
        seed.copy_from_slice(&identity.derive("connection ids")[..8]);
        let seed = u64::from_be_bytes(seed);
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(seed)));
        let bind = |source| LinkError::Bind { address, source };
        let endpoint = udp.endpoint(address, config, Some(server)).map_err(bind)?;
        let address = endpoint.local_addr().map_err(bind)?;
        Ok(Self { endpoint, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next worker that knocks; none once the listener is closed.
    pub async fn accept(&self) -> Option<Arriving> {
        loop {
            let incoming = self.endpoint.accept().await?;
            if self.endpoint.open_connections() < ARRIVING_MAX + crate::limits::WORKERS_MAX {
                return Some(Arriving(incoming));
            }
            incoming.ignore();
        }
    }

    /// Ends every link and frees the port; waits, bounded, until the peers have been told.
    pub async fn close(&self) {
        self.endpoint.close(0u8.into(), b"the gateway stops");
        let _ = timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// A worker whose handshake is under way.
#[derive(Debug)]
pub struct Arriving(quinn::Incoming);

impl Arriving {
    /// Completes the handshake and hears the worker's `Hello`.
    pub async fn greet(self) -> Result<Guest, LinkError> {
        timeout(GREETING_BOUND, async {
            let connection = self.0.await?;
            let name = PeerName::of_connection(connection.peer_identity()).map_err(LinkError::Protocol)?.node;
            let (send, receive) = connection.accept_bi().await?;
            let (control, mut reports) = (writer(send), reader(receive));
            let hello: Hello = read(&mut reports).await?.ok_or_else(|| LinkError::Protocol("no hello".to_owned()))?;
            if hello.version.chars().count() > VERSION_CHARS_MAX {
                return Err(LinkError::Protocol("the version text is too long".to_owned()));
            }
            Ok(Guest { name, hello, connection, control, reports })
        })
        .await
        .unwrap_or(Err(LinkError::Timeout))
    }
}

/// A worker that has said who it is and waits for its welcome.
#[derive(Debug)]
pub struct Guest {
    /// From its certificate.
    pub name: NodeName,
    /// What it says of itself.
    pub hello: Hello,
    connection: quinn::Connection,
    control: FrameWriter,
    reports: FrameReader,
}

impl Guest {
    /// Welcomes the worker; the link is up.
    pub async fn welcome(mut self, welcome: Welcome) -> Result<GatewayLink, LinkError> {
        write(&mut self.control, &welcome).await?;
        let (send, receive) = self.connection.open_bi().await?;
        let asker = Asker::start(writer(send), reader(receive));
        Ok(GatewayLink { connection: self.connection, control: self.control, reports: self.reports, asker })
    }

    /// Tells the worker why not. The worker closes once it has read it; a worker that does not is cut off.
    pub async fn decline(mut self, welcome: Welcome) -> Result<(), LinkError> {
        write(&mut self.control, &welcome).await?;
        if timeout(GREETING_BOUND, self.connection.closed()).await.is_err() {
            self.connection.close(1u8.into(), b"declined");
        }
        Ok(())
    }
}

/// A link as its gateway holds it.
#[derive(Debug)]
pub struct GatewayLink {
    connection: quinn::Connection,
    /// Down the control stream.
    pub control: FrameWriter,
    /// Up the control stream.
    pub reports: FrameReader,
    /// For calls.
    pub asker: Asker,
}

impl GatewayLink {
    /// A handle that ends the link and tells of its end.
    pub fn connection(&self) -> Closer {
        Closer(self.connection.clone())
    }

    /// The next snapshot's stream.
    pub fn snapshots(&self) -> Snapshots {
        Snapshots(self.connection.clone())
    }
}

/// Ends a link.
#[derive(Debug, Clone)]
pub struct Closer(quinn::Connection);

impl Closer {
    /// Ends the link, telling the peer why.
    pub fn close(&self, why: &str) {
        self.0.close(0u8.into(), why.as_bytes());
    }

    /// Waits for the end, and tells why.
    pub async fn closed(&self) -> String {
        self.0.closed().await.to_string()
    }
}

/// Where snapshots come in.
#[derive(Debug)]
pub struct Snapshots(quinn::Connection);

impl Snapshots {
    /// The next one.
    pub async fn next(&self) -> Result<FrameReader, LinkError> {
        Ok(reader(self.0.accept_uni().await?))
    }
}
