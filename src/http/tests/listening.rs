use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::super::{BindError, Server};
use super::house::House;
use crate::limits;

const BOUND: Duration = Duration::from_secs(20);

/// Sends `text` and reads until the server closes.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(BOUND, stream.read_to_string(&mut answer)).await.expect("the server closes").unwrap();
    answer
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn the_unix_socket_serves_its_owner_and_tcp_asks_for_a_token() {
    let house = House::new();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(house.app.clone(), Some(any), &house.socket()).await.unwrap();
    let address = server.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    assert_eq!(fs::metadata(house.socket()).unwrap().permissions().mode() & 0o777, 0o600);

    let local = exchange(UnixStream::connect(house.socket()).await.unwrap(), &get("/v1/leases", "")).await;
    assert!(local.starts_with("HTTP/1.1 200") && local.contains(r#""holderId":"admin""#), "{local}");
    let bare = exchange(TcpStream::connect(address).await.unwrap(), &get("/v1/leases", "")).await;
    assert!(bare.starts_with("HTTP/1.1 401") && bare.contains("www-authenticate: Bearer"), "{bare}");
    let bearer = format!("Authorization: Bearer {}\r\n", house.agent);
    let agent = exchange(TcpStream::connect(address).await.unwrap(), &get("/v1/leases", &bearer)).await;
    assert!(agent.starts_with("HTTP/1.1 200") && agent.contains(r#""holderId":"ci""#), "{agent}");

    server.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err());
    assert!(!house.socket().exists());
}

#[tokio::test]
async fn a_stop_lets_a_running_request_finish_and_ends_idle_connections() {
    let house = House::new();
    let server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
    assert_eq!(server.local_addr(), None);
    let _idle = UnixStream::connect(house.socket()).await.unwrap();
    let stream = UnixStream::connect(house.socket()).await.unwrap();
    let running = tokio::spawn(async move { exchange(stream, &get("/v1/workers", "")).await });
    house.fake.polled.notified().await;
    let stop = tokio::spawn(server.shutdown());
    tokio::time::timeout(BOUND, async {
        while house.socket().exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the listener closes first");
    assert!(!stop.is_finished());
    house.fake.release.notify_one();
    assert!(running.await.unwrap().starts_with("HTTP/1.1 200"));
    // Half the bound: an idle connection must not keep the node until it is cut.
    tokio::time::timeout(limits::STOP_BOUND / 2, stop).await.expect("nothing else keeps it").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_cuts_a_request_that_never_ends() {
    let house = House::new();
    let server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
    let stream = UnixStream::connect(house.socket()).await.unwrap();
    let running = tokio::spawn(async move { exchange(stream, &get("/v1/workers", "")).await });
    house.fake.polled.notified().await;
    server.shutdown().await;
    assert_eq!(running.await.unwrap(), "");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_sends_its_head_is_closed() {
    let house = House::new();
    let _server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
    let mut stream = UnixStream::connect(house.socket()).await.unwrap();
    stream.write_all(b"GET /v1/healthz HTTP/1.1\r\nHost: be").await.unwrap();
    let mut answer = String::new();
    let closed = tokio::time::timeout(Duration::from_secs(120), stream.read_to_string(&mut answer)).await;
    assert!(closed.is_ok(), "the head may not take for ever");
}

#[tokio::test]
async fn a_client_that_sends_too_much_still_hears_why() {
    let house = House::new();
    let _server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
    let body = " ".repeat(300 * 1024);
    let head = "POST /v1/lease-requests HTTP/1.1\r\nHost: berth\r\nConnection: close\r\nContent-Type: application/json";
    let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let told = exchange(UnixStream::connect(house.socket()).await.unwrap(), &text).await;
    assert!(told.starts_with("HTTP/1.1 413") && told.contains("PAYLOAD_TOO_LARGE"), "{told}");
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let house = House::new();
    drop(UnixListener::bind(house.socket()).unwrap());
    assert!(house.socket().exists());
    let server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
    let again = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap_err();
    assert!(matches!(again, BindError::InUse { .. }), "{again}");
    let told = exchange(UnixStream::connect(house.socket()).await.unwrap(), &get("/v1/healthz", "")).await;
    assert!(told.starts_with("HTTP/1.1 200"), "the first is not disturbed: {told}");
    server.shutdown().await;
}

#[tokio::test]
async fn what_is_in_the_way_of_a_listener_is_named_with_the_fix() {
    let house = House::new();
    let bind = async |api, path: &std::path::Path| {
        Server::bind(house.app.clone(), api, path).await.expect_err("something is in the way").to_string()
    };
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let told = bind(Some(address), &house.socket()).await;
    assert!(told.contains(&address.to_string()) && told.contains("another process listens there"), "{told}");
    assert!(!house.socket().exists(), "nothing is opened");
    let told = bind(Some("192.0.2.1:0".parse().unwrap()), &house.socket()).await;
    assert!(told.contains("no such address"), "{told}");

    let told = bind(None, &house.dir().join("x".repeat(120))).await;
    assert!(told.contains("too long") && told.contains("lab.state_dir"), "{told}");
    let file = house.dir().join("file");
    fs::write(&file, "precious").unwrap();
    assert!(bind(None, &file).await.contains("is no socket"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(bind(None, &house.dir().join("none/berth.sock")).await.contains("none/berth.sock"));
    fs::set_permissions(house.dir(), Permissions::from_mode(0o755)).unwrap();
    let told = bind(None, &house.socket()).await;
    assert!(told.contains("chmod 700"), "{told}");
}
