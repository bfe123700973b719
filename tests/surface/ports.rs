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
///
/// The kernel's tables are read where there are any. To bind the port and let it go again would take it for longer than
/// that: a process that another thread is just starting holds a copy until it has begun its program.
pub fn is_free(port: u16) -> bool {
    match (in_use("tcp", port), in_use("udp", port)) {
        (Some(tcp), Some(udp)) => !tcp && !udp,
        _ => TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok(),
    }
}

/// Whether a socket is bound to the port; none where that cannot be read.
fn in_use(protocol: &str, port: u16) -> Option<bool> {
    const TIME_WAIT: &str = "06";
    let local = format!(":{port:04X}");
    let is_bound = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let (address, state) = (columns.next().unwrap_or_default(), columns.nth(1).unwrap_or_default());
        address.ends_with(&local) && (protocol == "udp" || state != TIME_WAIT)
    };
    let tables = [protocol.to_owned(), format!("{protocol}6")];
    let read: Vec<String> =
        tables.iter().filter_map(|table| std::fs::read_to_string(format!("/proc/net/{table}")).ok()).collect();
    (!read.is_empty()).then(|| read.iter().any(|table| table.lines().skip(1).any(is_bound)))
}

#[test]
fn a_port_that_somebody_has_is_not_free() {
    let port = free_port();
    let tcp = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert!(!is_free(port));
    drop(tcp);
    let _udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    assert!(!is_free(port));
}
