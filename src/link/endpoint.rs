//! Settings of every link, and the UDP socket below it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, TransportConfig, VarInt};

/// Each side lets the other hear from it this often (SPEC §9).
const BEAT: Duration = Duration::from_millis(500);
/// A peer that has been silent for this long is gone (SPEC §9).
const IDLE_LIMIT_MS: u32 = 5_000;
/// The control stream, the call stream, and room for one more of each kind.
pub(super) const STREAMS_MAX: u32 = 4;
/// What a peer may send on one stream before it is read. A snapshot of 25 MB at 50 ms away takes three seconds with it. A
/// stream that nobody reads holds no more than this, and takes nothing from the others: a connection as a whole has no
/// bound but the sum of its streams'.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;

type Wrap = dyn Fn(UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> + Send + Sync;

/// How UDP sockets are made. Tests put one in between that loses, delays and cuts.
#[derive(Clone)]
pub struct Udp(Arc<Wrap>);

impl Udp {
    /// Sockets that go through `wrap`.
    pub fn new(wrap: impl Fn(UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    pub(super) fn endpoint(
        &self,
        address: SocketAddr,
        config: quinn::EndpointConfig,
        server: Option<quinn::ServerConfig>,
    ) -> io::Result<quinn::Endpoint> {
        let socket = (self.0)(UdpSocket::bind(address)?)?;
        quinn::Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
    }
}

impl Default for Udp {
    fn default() -> Self {
        Self::new(|socket| TokioRuntime.wrap_udp_socket(socket))
    }
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Udp")
    }
}

/// The peer may open so many bidirectional streams at a time.
pub(super) fn transport(bidirectional_max: u32) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(BEAT));
    transport.max_idle_timeout(Some(VarInt::from_u32(IDLE_LIMIT_MS).into()));
    transport.max_concurrent_bidi_streams(bidirectional_max.into());
    transport.max_concurrent_uni_streams(STREAMS_MAX.into());
    transport.stream_receive_window(STREAM_WINDOW_BYTES.into());
    // Sets how soon the first packet of a dial is sent again: a gateway that has just started hears the second one.
    transport.initial_rtt(Duration::from_millis(50));
    Arc::new(transport)
}
