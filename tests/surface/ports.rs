//! Ports for the nodes of a test.

use std::net::{TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that nobody uses, for TCP and UDP alike. It is below those that the system gives to whoever asks for any, so
/// that a node that was killed finds it free when it starts again.
pub fn free_port() -> u16 {
    const LOWEST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Test programs that run at the same time begin at different places.
    let next = NEXT.get_or_init(|| AtomicU16::new((std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16));
    loop {
        let port = LOWEST + next.fetch_add(1, Ordering::Relaxed) % COUNT;
        if is_free(port) {
            return port;
        }
    }
}

/// True when nobody listens on the port, on TCP or UDP.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok()
}
