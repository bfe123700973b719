//! The gateway's end of a link.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::VarInt;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn_proto::HashedConnectionIdGenerator;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ask::Asker;
use super::endpoint::{STREAMS_MAX, transport};
use super::exec::ExecStreams;
use super::join::{Joining, hear_joiner};
use super::stream::{FrameReader, FrameWriter, read, reader, write, writer};
use super::{LinkError, Udp};
use crate::limits::JOINS_MAX;
use crate::model::NodeName;
use crate::trust::{Identity, PeerName, Sha256Print, shown};
use crate::wire::ALPN;
use crate::wire::hello::{Hello, Welcome};
use crate::wire::join::JOIN_ALPN;

/// A worker has this long from its first packet to the end of its `Hello`.
const GREETING_BOUND: Duration = Duration::from_secs(5);
/// Handshakes that are under way at once; more are dropped, and their worker dials again.
const ARRIVING_MAX: usize = 1_024;
/// Closes a connection on which a worker has shown no certificate.
const NO_CERTIFICATE: VarInt = VarInt::from_u32(2);
/// Closes a connection on which a worker has not said hello as it should.
const BROKEN_PROTOCOL: VarInt = VarInt::from_u32(6);
/// The longest version text in a `Hello`.
const VERSION_CHARS_MAX: usize = 64;

/// The gateway's UDP port.
#[derive(Debug)]
pub struct Listener {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
    joins: Arc<Semaphore>,
}

impl Listener {
    /// Opens the port.
    ///
    /// The keys for stateless resets and for connection ids are derived from the node's key, both of them: only
    /// then does a worker of the last run learn at its next packet that this gateway has started anew.
    pub fn bind(address: SocketAddr, identity: &Identity, udp: &Udp) -> Result<Self, LinkError> {
        let tls = QuicServerConfig::try_from(identity.server_tls(&[ALPN, JOIN_ALPN])?)
            .map_err(|error| LinkError::Protocol(error.to_string()))?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls));
        server.transport_config(transport(STREAMS_MAX));
        let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &identity.derive("stateless reset"));
        let mut config = quinn::EndpointConfig::new(Arc::new(reset));
        let mut seed = [0; 8];
        seed.copy_from_slice(&identity.derive("connection ids")[..8]);
        let seed = u64::from_be_bytes(seed);
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(seed)));
        let bind = |source| LinkError::Bind { address, source };
        let endpoint = udp.endpoint(address, config, Some(server)).map_err(bind)?;
        let address = endpoint.local_addr().map_err(bind)?;
        Ok(Self { endpoint, address, joins: Arc::new(Semaphore::new(JOINS_MAX)) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next peer that knocks; none once the listener is closed.
    pub async fn accept(&self) -> Option<Arriving> {
        loop {
            let incoming = self.endpoint.accept().await?;
            if self.endpoint.open_connections() < ARRIVING_MAX + crate::limits::WORKERS_MAX {
                return Some(Arriving { incoming, joins: Arc::clone(&self.joins) });
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

/// A peer whose handshake is under way.
#[derive(Debug)]
pub struct Arriving {
    incoming: quinn::Incoming,
    joins: Arc<Semaphore>,
}

/// A peer whose handshake is over.
#[derive(Debug)]
pub enum Greeted {
    /// A worker.
    Worker(Guest),
    /// A machine that wants to become one.
    Joiner(Joining),
}

/// A peer that was sent away before it could be judged.
#[derive(Debug)]
pub struct NotGreeted {
    /// Its name, if its certificate has proved one.
    pub worker: Option<NodeName>,
    /// Why.
    pub error: LinkError,
}

impl Arriving {
    /// Where it comes from.
    pub fn address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Completes the handshake and hears what the peer wants: a worker's `Hello`, or a machine's wish to join. Whoever
    /// breaks the protocol is told so, and cut off.
    pub async fn greet(self) -> Result<Greeted, NotGreeted> {
        let mut met = None;
        let greeted = timeout(GREETING_BOUND, self.hear(&mut met)).await.unwrap_or(Err(LinkError::Timeout));
        greeted.map_err(|error| {
            let worker = met.map(|(name, connection): (NodeName, quinn::Connection)| {
                connection.close(BROKEN_PROTOCOL, error.why().as_bytes());
                name
            });
            NotGreeted { worker, error }
        })
    }

    /// Fills `met` once a worker has proved its name.
    async fn hear(self, met: &mut Option<(NodeName, quinn::Connection)>) -> Result<Greeted, LinkError> {
        let address = self.incoming.remote_address();
        let connection = self.incoming.await?;
        if protocol(&connection).as_deref() == Some(JOIN_ALPN) {
            return hear_joiner(connection, address, self.joins).await.map(Greeted::Joiner);
        }
        let Ok(certificate) = shown(connection.peer_identity()) else {
            connection.close(NO_CERTIFICATE, b"a worker shows a certificate of the lab; `berth join` gets one");
            return Err(LinkError::NoCertificate);
        };
        let name = PeerName::of(&certificate).map_err(LinkError::Protocol)?.node;
        *met = Some((name.clone(), connection.clone()));
        let key = Sha256Print::of_key_in(&certificate).map_err(LinkError::Protocol)?;
        let (send, receive) = connection.accept_bi().await?;
        let (control, mut reports) = (writer(send), reader(receive));
        let hello: Hello = read(&mut reports).await?.ok_or_else(|| LinkError::Protocol("no hello".to_owned()))?;
        if hello.version.chars().count() > VERSION_CHARS_MAX {
            return Err(LinkError::Protocol("the version text is too long".to_owned()));
        }
        Ok(Greeted::Worker(Guest { name, key, address, hello, connection, control, reports }))
    }
}

/// The protocol that TLS has agreed on.
fn protocol(connection: &quinn::Connection) -> Option<Vec<u8>> {
    connection.handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
}

/// A worker that has said who it is and waits for its welcome.
#[derive(Debug)]
pub struct Guest {
    /// From its certificate.
    pub name: NodeName,
    /// The fingerprint of its key, which it has proved to have.
    pub key: Sha256Print,
    /// Where it comes from.
    pub address: SocketAddr,
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
        let Welcome::Accepted { protocol, .. } = welcome else {
            return Err(LinkError::Protocol("a welcome that is none".to_owned()));
        };
        let (send, receive) = self.connection.open_bi().await?;
        let asker = Asker::start(writer(send), reader(receive));
        let execs = ExecStreams::new(self.connection.clone(), protocol);
        Ok(GatewayLink { connection: self.connection, control: self.control, reports: self.reports, asker, execs })
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
    /// For tools.
    pub execs: ExecStreams,
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
