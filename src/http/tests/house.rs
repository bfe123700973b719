//! A door before a fake coordinator, and the calls that tests make.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use futures_util::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::super::router::{Front, router};
use super::super::{App, door::Peer};
use super::config::OneMore;
use super::fake::Fake;
use crate::clock::Clock;
use crate::model::{Code, Role};
use crate::service::Coordinator;
use crate::trust::{Tokens, admin_token};

/// A door before a fake, with one token of each role.
pub(super) struct House {
    pub fake: Arc<Fake>,
    pub app: App,
    pub dir: tempfile::TempDir,
    pub agent: String,
    pub viewer: String,
    pub admin: String,
    pub stopping: CancellationToken,
    router: axum::Router,
}

/// An answer, taken apart.
#[derive(Debug)]
pub(super) struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Told {
    /// The code of a refusal, whose whole shape is checked on the way.
    pub fn code(&self) -> Code {
        let error = self.body["error"].as_object().unwrap_or_else(|| panic!("no refusal: {self:?}"));
        assert_eq!(self.body.as_object().unwrap().len(), 1);
        assert!(error.keys().all(|key| ["code", "message", "details"].contains(&key.as_str())), "{error:?}");
        assert!(!error["message"].as_str().unwrap().is_empty());
        let code = Code::parse(error["code"].as_str().unwrap()).unwrap();
        assert_eq!(self.status.as_u16(), code.http_status());
        code
    }

    /// The field that a `BAD_REQUEST` names, in its details and in its message.
    pub fn field(&self) -> &str {
        assert_eq!(self.code(), Code::BadRequest, "{self:?}");
        let field = self.body["error"]["details"]["field"].as_str().unwrap();
        assert!(self.body["error"]["message"].as_str().unwrap().starts_with(field), "{self:?}");
        field
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl House {
    pub fn new() -> Self {
        Self::with(Fake { ready: true, ..Fake::default() }, 100)
    }

    pub fn with(fake: Fake, requests_max: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let make = |name: &str, role| {
            let (_, secret) = tokens.create(name.parse().unwrap(), role, Timestamp::UNIX_EPOCH).unwrap();
            secret.expose().to_owned()
        };
        let (agent, viewer) = (make("ci", Role::Agent), make("wall", Role::Viewer));
        let admin = admin_token(dir.path()).unwrap().expose().to_owned();
        let fake = Arc::new(fake);
        let coordinator: Arc<dyn Coordinator> = fake.clone();
        let app = App {
            coordinator,
            tokens: Arc::new(tokens),
            rules: Arc::default(),
            reloads: Arc::new(OneMore),
            clock: Clock::system(),
        };
        let stopping = CancellationToken::new();
        let router = router(Front::new(app.clone(), stopping.clone(), requests_max));
        Self { fake, app, dir, agent, viewer, admin, stopping, router }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("berth.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends a request as it is, as the operator on the Unix socket unless it shows a token.
    pub async fn send(&self, mut request: Request<Body>) -> Told {
        if request.extensions().get::<Peer>().is_none() {
            request.extensions_mut().insert(Peer::Operator);
        }
        let head = request.method() == "HEAD";
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let empty = head || parts.status == StatusCode::NO_CONTENT;
        assert!(parts.status == StatusCode::NO_CONTENT || parts.headers["content-type"] == "application/json");
        let body = if empty { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Told { status: parts.status, headers: parts.headers, body }
    }

    /// Opens a stream as the operator on the Unix socket; `headers` are names and values.
    pub async fn open(&self, path: &str, headers: &[(&str, &str)]) -> Streaming {
        let mut request = Request::get(path).extension(Peer::Operator);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], "text/event-stream");
        assert_eq!(parts.headers["cache-control"], "no-store");
        Streaming(body.into_data_stream())
    }

    pub async fn call(&self, method: &str, path: &str) -> Told {
        self.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    /// Sends JSON by any method as the holder of a token.
    pub async fn ask(&self, method: &str, path: &str, secret: &str, body: &str) -> Told {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {secret}"));
        let request = request.header("content-type", "application/json").extension(Peer::Network);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Told {
        self.call("GET", path).await
    }

    /// Sends JSON, whatever `body` is.
    pub async fn post(&self, path: &str, body: &str) -> Told {
        let request = Request::post(path).header("content-type", "application/json; charset=utf-8");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Sends JSON and reads an answer of JSON lines.
    pub async fn lines(&self, path: &str, body: &str) -> Vec<Value> {
        let request = Request::post(path).header("content-type", "application/json").extension(Peer::Operator);
        let response = self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], "application/x-ndjson");
        assert_eq!(parts.headers["cache-control"], "no-store");
        let text = String::from_utf8(axum::body::to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asks over the network with a token.
    pub async fn with_token(&self, method: &str, path: &str, authorization: &str) -> Told {
        let request = Request::builder().method(method).uri(path).header("authorization", authorization);
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::Network);
        self.send(request).await
    }
}

/// A stream of events, as text.
pub(super) struct Streaming(BodyDataStream);

impl Streaming {
    /// The next event or comment; none at the end.
    pub async fn next(&mut self) -> Option<String> {
        let frame = tokio::time::timeout(Duration::from_secs(60), self.0.next()).await.expect("something comes")?;
        Some(String::from_utf8(frame.unwrap().to_vec()).unwrap())
    }

    /// The number, the name and the data of the next event.
    pub async fn event(&mut self) -> (String, String, Value) {
        let text = self.next().await.expect("another event");
        let field = |name: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            lines.collect::<String>()
        };
        (field("id"), field("event"), serde_json::from_str(&field("data")).unwrap_or_default())
    }
}
