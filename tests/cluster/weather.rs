//! A UDP socket that loses, delays, doubles and reorders what the test tells it to.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use berth::link::Udp;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

/// What befalls packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Lose,
    /// All of them, by the same 200 ms.
    Delay,
    /// Each comes a second time, within 50 ms.
    Double,
    /// Each is delayed by another time below 50 ms.
    Reorder,
}

/// A fault that begins with a certain packet.
#[derive(Debug)]
pub struct Storm {
    pub fault: Fault,
    /// Befalls what comes from these ports.
    pub from: Vec<u16>,
    /// And from every port that is opened while it lasts.
    pub newcomers: bool,
    /// Packets from these ports that pass unharmed before it begins.
    pub after: u64,
    pub seed: u64,
}

impl Storm {
    /// When copies of the next packet are sent; `None` when it is not befallen.
    fn next(&mut self, from: u16) -> Option<Vec<Duration>> {
        if !self.from.contains(&from) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        // xorshift64; the seed is never zero.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let some = Duration::from_millis(self.seed % 50);
        Some(match self.fault {
            Fault::Lose => vec![],
            Fault::Delay => vec![Duration::from_millis(200)],
            Fault::Double => vec![Duration::ZERO, some],
            Fault::Reorder => vec![some],
        })
    }
}

/// Which packets arrive.
#[derive(Clone, Default)]
pub struct Weather(Arc<Mutex<Cuts>>);

#[derive(Default)]
struct Cuts {
    /// Ports that hear nothing from anybody.
    deaf: HashSet<u16>,
    /// Ports that nobody hears.
    mute: HashSet<u16>,
    storm: Option<Storm>,
    /// Every port that a node has opened, in order.
    opened: Vec<u16>,
}

impl Cuts {
    fn opens(&mut self, port: u16) {
        self.opened.push(port);
        if let Some(storm) = self.storm.as_mut().filter(|storm| storm.newcomers) {
            storm.from.push(port);
        }
    }
}

impl Weather {
    /// Sockets in this weather.
    pub fn udp(&self) -> Udp {
        let weather = self.clone();
        Udp::new(move |socket: UdpSocket| {
            let me = socket.local_addr()?.port();
            weather.0.lock().unwrap().opens(me);
            let inner = TokioRuntime.wrap_udp_socket(socket)?;
            Ok(Arc::new(WeatheredSocket { inner, me, weather: weather.clone() }))
        })
    }

    /// The port of the `index`th socket that was opened.
    pub fn opened(&self, index: usize) -> u16 {
        self.0.lock().unwrap().opened[index]
    }

    /// The port of the socket that was opened last.
    pub fn newest(&self) -> u16 {
        *self.0.lock().unwrap().opened.last().expect("some node has started")
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

    /// From now on this befalls packets, instead of what did before.
    pub fn storm(&self, storm: Storm) {
        self.0.lock().unwrap().storm = Some(storm);
    }

    /// True once the storm has begun.
    pub fn storms(&self) -> bool {
        self.0.lock().unwrap().storm.as_ref().is_some_and(|storm| storm.after == 0)
    }

    /// Everything arrives again; what is delayed still comes late.
    pub fn clear(&self) {
        let mut cuts = self.0.lock().unwrap();
        cuts.deaf.clear();
        cuts.mute.clear();
        cuts.storm = None;
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
        if !self.weather.arrives(self.me, transmit.destination.port()) {
            return Ok(());
        }
        let befallen = self.weather.0.lock().unwrap().storm.as_mut().and_then(|storm| storm.next(self.me));
        let Some(copies) = befallen else { return self.inner.try_send(transmit) };
        for delay in copies {
            let (inner, contents) = (Arc::downgrade(&self.inner), transmit.contents.to_vec());
            let (destination, ecn, src_ip) = (transmit.destination, transmit.ecn, transmit.src_ip);
            let segment_size = transmit.segment_size;
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // What is late does not keep the port of a node that has stopped.
                let Some(inner) = inner.upgrade() else { return };
                // A socket that is full loses it, as networks do.
                let _ = inner.try_send(&Transmit { destination, ecn, contents: &contents, segment_size, src_ip });
            });
        }
        Ok(())
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
