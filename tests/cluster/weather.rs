//! A UDP socket that loses what the test tells it to lose.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use berth::link::Udp;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

/// Which packets arrive.
#[derive(Clone, Default)]
pub struct Weather(Arc<Mutex<Cuts>>);

#[derive(Default)]
struct Cuts {
    /// Ports that hear nothing from anybody.
    deaf: HashSet<u16>,
    /// Ports that nobody hears.
    mute: HashSet<u16>,
    /// Every port that a node has opened, in order.
    opened: Vec<u16>,
}

impl Weather {
    /// Sockets in this weather.
    pub fn udp(&self) -> Udp {
        let weather = self.clone();
        Udp::new(move |socket: UdpSocket| {
            let me = socket.local_addr()?.port();
            weather.0.lock().unwrap().opened.push(me);
            let inner = TokioRuntime.wrap_udp_socket(socket)?;
            Ok(Arc::new(WeatheredSocket { inner, me, weather: weather.clone() }))
        })
    }

    /// The port of the `index`th socket that was opened.
    pub fn opened(&self, index: usize) -> u16 {
        self.0.lock().unwrap().opened[index]
    }

    /// Nothing reaches or leaves this port any more.
    pub fn cut(&self, port: u16) {
        let mut cuts = self.0.lock().unwrap();
        cuts.deaf.insert(port);
        cuts.mute.insert(port);
    }

    /// What this port sends is lost; it still hears.
    pub fn mute(&self, port: u16) {
        self.0.lock().unwrap().mute.insert(port);
    }

    /// Everything arrives again.
    pub fn clear(&self) {
        let mut cuts = self.0.lock().unwrap();
        cuts.deaf.clear();
        cuts.mute.clear();
    }

    fn arrives(&self, from: u16, to: u16) -> bool {
        let cuts = self.0.lock().unwrap();
        !cuts.mute.contains(&from) && !cuts.deaf.contains(&to)
    }
}

impl fmt::Debug for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Weather")
    }
}

#[derive(Debug)]
struct WeatheredSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    me: u16,
    weather: Weather,
}

impl AsyncUdpSocket for WeatheredSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        if self.weather.arrives(self.me, transmit.destination.port()) { self.inner.try_send(transmit) } else { Ok(()) }
    }

    fn poll_recv(
        &self,
        context: &mut Context,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
