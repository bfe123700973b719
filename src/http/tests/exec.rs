use std::time::Duration;

use axum::http::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::super::Server;
use super::fake::Fake;
use super::house::House;
use crate::link::exec::CallerLine;
use crate::model::{Code, ExecSignal, Refusal};
use crate::wire::exec::{FromTool, ToTool};

const BOUND: Duration = Duration::from_secs(20);
const PATH: &str = "/v1/leases/mine/exec";

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("in time")
}

/// The tool's end of what was started last.
async fn started(fake: &Fake) -> CallerLine {
    within(fake.started.notified()).await;
    fake.tools.lock().unwrap().pop_front().unwrap()
}

async fn heard(tool: &mut CallerLine) -> Option<ToTool> {
    within(tool.from.recv()).await
}

fn out(text: &'static str) -> FromTool {
    FromTool::Stdout(Bytes::from_static(text.as_bytes()))
}

#[tokio::test]
async fn one_request_runs_a_tool_and_its_answer_is_what_the_tool_writes_line_by_line() {
    let house = House::new();
    let body = json!({ "tool": "adb", "args": ["shell", "-x"], "fence": 7, "stdin": STANDARD.encode(b"\0in") });
    let asked = body.to_string();
    let (lines, ()) = tokio::join!(house.lines(PATH, &asked), async {
        let mut tool = started(&house.fake).await;
        assert_eq!(heard(&mut tool).await, Some(ToTool::Stdin(Bytes::from_static(b"\0in"))));
        assert_eq!(heard(&mut tool).await, Some(ToTool::Eof));
        tool.to.send(FromTool::Ack(3)).await.unwrap();
        tool.to.send(out("out")).await.unwrap();
        assert_eq!(heard(&mut tool).await, Some(ToTool::Ack(3)), "once the next is asked for");
        tool.to.send(FromTool::Stderr(Bytes::from_static(b"\xff"))).await.unwrap();
        tool.to.send(FromTool::Exit(3)).await.unwrap();
    });
    assert_eq!(house.fake.last(), "exec mine adb [\"shell\", \"-x\"] Some(Fence(7)) as admin");
    let expected = [
        json!({ "stream": "stdout", "data": "b3V0" }),
        json!({ "stream": "stderr", "data": "/w==" }),
        json!({ "exit": 3 }),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_tool_that_is_ended_says_why_in_the_last_line() {
    let house = House::new();
    let (lines, ()) = tokio::join!(house.lines(PATH, r#"{"tool":"adb"}"#), async {
        let mut tool = started(&house.fake).await;
        assert_eq!(heard(&mut tool).await, Some(ToTool::Eof), "without stdin it has ended");
        let lost = Refusal::new(Code::UnknownLease, "it is over").with("reason", "expired");
        tool.to.send(FromTool::Failed(lost)).await.unwrap();
    });
    let error = json!({ "code": "UNKNOWN_LEASE", "message": "it is over", "details": { "reason": "expired" } });
    assert_eq!(lines, [json!({ "error": error })]);
}

#[tokio::test]
async fn what_is_refused_before_a_tool_runs_is_an_error_like_any_other() {
    let house = House::new();
    let refused = |path: &'static str, body: Value| {
        let house = &house;
        async move { house.post(path, &body.to_string()).await }
    };
    assert_eq!(refused("/v1/leases/gone/exec", json!({ "tool": "adb" })).await.code(), Code::UnknownLease);
    let no = refused(PATH, json!({ "tool": "rm" })).await;
    assert_eq!((no.field(), &no.body["error"]["details"]["allowed"]), ("tool", &json!(["adb"])));
    for (body, field) in [
        (json!({}), "tool"),
        (json!({ "tool": "a b" }), "tool"),
        (json!({ "tool": "adb", "args": "x" }), "args"),
        (json!({ "tool": "adb", "args": vec![""; 257] }), "args"),
        (json!({ "tool": "adb", "args": ["\0"] }), "args"),
        (json!({ "tool": "adb", "args": ["x".repeat(33 * 1024)] }), "args"),
        (json!({ "tool": "adb", "stdin": "?" }), "stdin"),
        (json!({ "tool": "adb", "stdin": null }), "stdin"),
        (json!({ "tool": "adb", "tty": true }), "tty"),
    ] {
        assert_eq!(refused(PATH, body.clone()).await.field(), field, "{body}");
    }
    let large = refused(PATH, json!({ "tool": "adb", "stdin": "A".repeat(65 * 1024) })).await;
    assert_eq!(large.code(), Code::PayloadTooLarge);
    let viewer = house.ask("POST", PATH, &house.viewer, r#"{"tool":"adb"}"#).await;
    assert_eq!(viewer.code(), Code::InsufficientPermissions);
    assert_eq!(house.get(PATH).await.field(), "Upgrade", "a WebSocket is opened, not got");
}

/// A server before the fake, and one client.
struct Talk {
    house: House,
    server: Server,
    socket: WebSocketStream<UnixStream>,
}

async fn connect(
    house: &House,
    offers: Option<&str>,
    token: Option<&str>,
) -> Result<WebSocketStream<UnixStream>, Error> {
    let stream = UnixStream::connect(house.socket()).await.unwrap();
    let mut request = format!("ws://localhost{PATH}").into_client_request().unwrap();
    if let Some(offers) = offers {
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_str(offers).unwrap());
    }
    if let Some(token) = token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        request.headers_mut().insert("Authorization", bearer);
    }
    within(client_async(request, stream)).await.map(|(socket, _)| socket)
}

impl Talk {
    async fn new() -> Self {
        Self::of(None).await
    }

    async fn of(token: Option<fn(&House) -> String>) -> Self {
        let house = House::new();
        let server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
        let token = token.map(|of| of(&house));
        let socket = connect(&house, Some("other, berth-exec.v1"), token.as_deref()).await.unwrap();
        Self { house, server, socket }
    }

    async fn say(&mut self, word: Value) {
        self.socket.send(Message::Text(word.to_string().into())).await.unwrap();
    }

    /// The next text or binary frame; none at the close.
    async fn next(&mut self) -> Option<Message> {
        loop {
            match within(self.socket.next()).await {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return None,
                Some(Ok(message)) => return Some(message),
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }

    async fn word(&mut self) -> Value {
        match self.next().await {
            Some(Message::Text(text)) => serde_json::from_str(text.as_str()).unwrap(),
            other => panic!("no text: {other:?}"),
        }
    }

    async fn start(&mut self) -> CallerLine {
        self.say(json!({ "tool": "adb", "args": ["x"], "fence": 7 })).await;
        let tool = started(&self.house.fake).await;
        assert_eq!(self.word().await, json!({ "started": true }));
        tool
    }

    /// The code of the last frame, behind which it closes.
    async fn refused(&mut self) -> String {
        let last = self.word().await;
        assert_eq!(self.next().await, None);
        last["error"]["code"].as_str().unwrap_or_else(|| panic!("{last}")).to_owned()
    }
}

#[tokio::test]
async fn a_conversation_carries_stdin_output_signals_and_the_exit_code() {
    let mut talk = Talk::new().await;
    let mut tool = talk.start().await;
    assert_eq!(talk.house.fake.last(), "exec mine adb [\"x\"] Some(Fence(7)) as admin");
    talk.socket.send(Message::Binary(Bytes::from_static(b"\0in"))).await.unwrap();
    talk.say(json!({ "signal": "INT" })).await;
    talk.say(json!({ "ack": 5 })).await;
    talk.say(json!({ "eof": true })).await;
    assert_eq!(heard(&mut tool).await, Some(ToTool::Stdin(Bytes::from_static(b"in"))));
    assert_eq!(heard(&mut tool).await, Some(ToTool::Signal(ExecSignal::Int)));
    assert_eq!(heard(&mut tool).await, Some(ToTool::Ack(5)));
    assert_eq!(heard(&mut tool).await, Some(ToTool::Eof));
    for frame in [FromTool::Ack(2), out("o"), FromTool::Stderr(Bytes::from_static(b"e")), FromTool::Exit(137)] {
        tool.to.send(frame).await.unwrap();
    }
    assert_eq!(talk.word().await, json!({ "ack": 2 }));
    assert_eq!(talk.next().await, Some(Message::Binary(Bytes::from_static(b"\x01o"))));
    assert_eq!(talk.next().await, Some(Message::Binary(Bytes::from_static(b"\x02e"))));
    assert_eq!(talk.word().await, json!({ "exit": 137 }));
    assert_eq!(talk.next().await, None);
}

#[tokio::test]
async fn a_refusal_comes_as_the_only_frame() {
    for (first, code) in [
        (json!({ "tool": "rm" }), "BAD_REQUEST"),
        (json!({ "tool": "adb", "stdin": "" }), "BAD_REQUEST"),
        (json!(["adb"]), "BAD_REQUEST"),
        (
            json!({ "tool": "adb", "args": ["x".repeat(32_000), "y".repeat(32_000), "z".repeat(3_000)] }),
            "PAYLOAD_TOO_LARGE",
        ),
    ] {
        let mut talk = Talk::new().await;
        talk.say(first).await;
        assert_eq!(talk.refused().await, code);
    }
    let mut talk = Talk::new().await;
    talk.socket.send(Message::Binary(Bytes::from_static(b"\0"))).await.unwrap();
    assert_eq!(talk.refused().await, "BAD_REQUEST");
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_so_and_its_tool_is_left() {
    let broken = [
        Message::Binary(Bytes::new()),
        Message::Binary(Bytes::from_static(b"\x01out")),
        Message::Text(r#"{"eof":false}"#.into()),
        Message::Text(r#"{"signal":"STOP"}"#.into()),
        Message::Text(r#"{"ack":-1}"#.into()),
        Message::Text("hello".into()),
    ];
    for message in broken {
        let mut talk = Talk::new().await;
        let mut tool = talk.start().await;
        talk.socket.send(message.clone()).await.unwrap();
        assert_eq!(talk.refused().await, "BAD_REQUEST", "{message:?}");
        assert_eq!(heard(&mut tool).await, None, "{message:?}");
    }
}

#[tokio::test]
async fn a_tool_is_left_when_its_client_goes() {
    let mut talk = Talk::new().await;
    let mut tool = talk.start().await;
    let Talk { house, server, socket } = talk;
    drop(socket);
    assert_eq!(heard(&mut tool).await, None);
    // The same for one that has asked by one request, while the tool says nothing.
    let mut stream = UnixStream::connect(house.socket()).await.unwrap();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{{\"tool\":\"adb\"}}"
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut tool = started(&house.fake).await;
    assert_eq!(heard(&mut tool).await, Some(ToTool::Eof));
    drop(stream);
    assert_eq!(heard(&mut tool).await, None);
    drop(server);
}

#[tokio::test]
async fn another_subprotocol_is_refused() {
    for offers in [None, Some("other")] {
        let house = House::new();
        let _server = Server::bind(house.app.clone(), None, &house.socket()).await.unwrap();
        match connect(&house, offers, None).await {
            Err(Error::Http(answer)) => {
                let body: Value = serde_json::from_slice(answer.body().as_deref().unwrap_or_default()).unwrap();
                assert_eq!((answer.status().as_u16(), &body["error"]["code"]), (400, &json!("BAD_REQUEST")));
                assert!(body["error"]["message"].as_str().unwrap().contains("berth-exec.v1"), "{body}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stop_ends_the_conversation_and_waits_until_the_client_has_heard_it() {
    let mut talk = Talk::new().await;
    let mut tool = talk.start().await;
    let Talk { house, server, socket } = talk;
    let stop = tokio::spawn(server.shutdown());
    assert_eq!(heard(&mut tool).await, None);
    assert!(!stop.is_finished(), "the client has not closed");
    let mut talk = socket;
    let Some(Ok(Message::Text(last))) = within(talk.next()).await else { panic!("nothing is said") };
    assert!(last.as_str().contains("STOPPING"), "{last}");
    while let Some(Ok(_)) = within(talk.next()).await {}
    within(stop).await.unwrap();
    drop(house);
}

#[tokio::test]
async fn a_token_that_is_revoked_ends_the_conversation() {
    let mut talk = Talk::of(Some(|house| house.agent.clone())).await;
    let mut tool = talk.start().await;
    assert!(talk.house.fake.last().ends_with("as ci"), "{}", talk.house.fake.last());
    let token = talk.house.app.tokens.list().into_iter().find(|token| token.name.as_str() == "ci").unwrap();
    talk.house.app.tokens.revoke(&token.id, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(talk.refused().await, "UNAUTHENTICATED");
    assert_eq!(heard(&mut tool).await, None);
}
