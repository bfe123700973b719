//! The worker's end of a link.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::time::timeout;

use super::endpoint::{STREAMS_MAX, transport};
use super::exec::ExecArrival;
use super::stream::{FrameReader, FrameWriter, read, reader, write, write_raw, writer};
use super::{DialError, LinkError, Udp};
use crate::limits::EXECS_MAX;
use crate::model::NodeName;
use crate::trust::Identity;
use crate::wire::ALPN;
use crate::wire::hello::{Hello, Welcome};

/// One attempt takes at most this long. It is short, because a gateway that starts during an attempt is heard only when
/// the next packet is sent, and QUIC doubles the time between those.
const DIAL_BOUND: Duration = Duration::from_secs(1);

/// Beside the others, a stream for each tool that may run here.
const BIDIRECTIONAL_MAX: u32 = STREAMS_MAX + EXECS_MAX as u32;

/// A name is looked up for at most this long.
const RESOLVE_BOUND: Duration = Duration::from_secs(10);

/// Dials one gateway.
#[derive(Debug)]
pub struct Dialer {
    endpoint: quinn::Endpoint,
    v6: bool,
}

impl Dialer {
    /// A dialler that accepts only the gateway `gateway` of the identity's lab, at `address`.
    pub fn new(identity: &Identity, gateway: &NodeName, address: &str, udp: &Udp) -> Result<Self, LinkError> {
        let tls = QuicClientConfig::try_from(identity.client_tls(ALPN, gateway)?)
            .map_err(|error| LinkError::Protocol(error.to_string()))?;
        let mut client = quinn::ClientConfig::new(Arc::new(tls));
        client.transport_config(transport(BIDIRECTIONAL_MAX));
        let v6 = address.starts_with('[');
        let any: SocketAddr = if v6 { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
        let mut endpoint = udp
            .endpoint(any, quinn::EndpointConfig::default(), None)
            .map_err(|source| LinkError::Bind { address: any, source })?;
        endpoint.set_default_client_config(client);
        Ok(Self { endpoint, v6 })
    }

    /// Dials `address`, a host and port, says `hello` and waits for the welcome.
    pub async fn dial(&self, address: &str, hello: &Hello) -> Result<WorkerLink, DialError> {
        let remote = self.resolve(address).await?;
        timeout(DIAL_BOUND, self.attempt(remote, hello)).await.unwrap_or(Err(LinkError::Timeout.into()))
    }

    /// Where `address` is. A resolver may be slower than any gateway.
    async fn resolve(&self, address: &str) -> Result<SocketAddr, DialError> {
        let failed = |source| DialError::Resolve { address: address.to_owned(), source };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let found = timeout(RESOLVE_BOUND, tokio::net::lookup_host(address)).await.map_err(late);
        let mut found = found.and_then(|found| found).map_err(failed)?;
        let nothing = || std::io::Error::other("no address of the right family");
        found.find(|found| found.is_ipv6() == self.v6).ok_or_else(nothing).map_err(failed)
    }

    async fn attempt(&self, remote: SocketAddr, hello: &Hello) -> Result<WorkerLink, DialError> {
        // The name in the certificate is checked by the verifier; this one is sent to nobody.
        let connecting = self.endpoint.connect(remote, "gateway.invalid");
        let connection = connecting.map_err(|error| LinkError::Protocol(error.to_string()))?;
        let connection = connection.await.map_err(LinkError::from)?;
        let link = self.converse(connection.clone(), hello).await;
        // A stream breaks because its connection has ended, and that says why.
        link.map_err(|error| match (error, connection.close_reason()) {
            (DialError::Link(_), Some(ended)) => LinkError::from(ended).into(),
            (error, _) => error,
        })
    }

    async fn converse(&self, connection: quinn::Connection, hello: &Hello) -> Result<WorkerLink, DialError> {
        let (send, receive) = connection.open_bi().await.map_err(LinkError::from)?;
        let (mut reports, mut control) = (writer(send), reader(receive));
        write(&mut reports, hello).await?;
        match read::<Welcome>(&mut control).await? {
            Some(Welcome::Accepted { protocol, drained, events_after })
                if protocol >= hello.protocol.min && protocol <= hello.protocol.max =>
            {
                Ok(WorkerLink { connection, reports, control, drained, events_after })
            }
            Some(Welcome::Accepted { .. }) => Err(LinkError::Protocol("an unknown version was chosen".into()).into()),
            Some(Welcome::Incompatible { protocol }) => {
                connection.close(0u8.into(), b"incompatible");
                Err(DialError::Incompatible { theirs: protocol, ours: hello.protocol })
            }
            Some(Welcome::Refused { why }) => {
                connection.close(0u8.into(), b"refused");
                Err(DialError::Refused(why.chars().take(300).collect()))
            }
            None => Err(LinkError::Protocol("no welcome".into()).into()),
        }
    }

    /// Ends every link; waits, bounded, until the gateway has been told.
    pub async fn close(&self) {
        self.endpoint.close(0u8.into(), b"the worker stops");
        let _ = timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// A link as its worker holds it.
#[derive(Debug)]
pub struct WorkerLink {
    connection: quinn::Connection,
    /// Up the control stream.
    pub reports: FrameWriter,
    /// Down the control stream.
    pub control: FrameReader,
    /// True when the whole worker is out.
    pub drained: bool,
    /// The number of the last of the worker's events that the gateway has.
    pub events_after: Option<u64>,
}

impl WorkerLink {
    /// A handle for the link's other streams.
    pub fn streams(&self) -> Streams {
        Streams(self.connection.clone())
    }
}

/// The streams of a link besides the control stream.
#[derive(Debug, Clone)]
pub struct Streams(quinn::Connection);

impl Streams {
    /// Sends one snapshot, on a stream of its own.
    pub async fn send_snapshot(&self, frames: Vec<Bytes>) -> Result<(), LinkError> {
        let mut stream = writer(self.0.open_uni().await?);
        for frame in frames {
            write_raw(&mut stream, frame).await?;
        }
        Ok(futures_util::SinkExt::<Bytes>::close(&mut stream).await?)
    }

    /// The stream on which the gateway calls.
    pub async fn calls(&self) -> Result<(FrameWriter, FrameReader), LinkError> {
        let (send, receive) = self.0.accept_bi().await?;
        Ok((writer(send), reader(receive)))
    }

    /// The next stream on which the gateway has a tool run. It is asked for once that of the calls is there.
    pub async fn exec(&self) -> Result<ExecArrival, LinkError> {
        let (send, receive) = self.0.accept_bi().await?;
        Ok(ExecArrival::new(send, receive))
    }

    /// Counts what has been received from the gateway: something that only it can have sent, at least its sign of life.
    pub fn received(&self) -> u64 {
        let frames = self.0.stats().frame_rx;
        frames.acks.wrapping_add(frames.ping).wrapping_add(frames.stream)
    }

    /// Waits for the end of the link, and tells why.
    pub async fn closed(&self) -> quinn::ConnectionError {
        self.0.closed().await
    }

    /// Ends the link.
    pub fn close(&self, why: &str) {
        self.0.close(0u8.into(), why.as_bytes());
    }
}
