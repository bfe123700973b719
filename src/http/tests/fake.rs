//! A coordinator whose answers follow from the question, and the calls that tests make.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::super::router::{Front, router};
use super::super::{App, door::Peer};
use crate::admission::LeaseRules;
use crate::clock::Clock;
use crate::model::{
    Ask, Caller, Code, DeviceState, Fence, Labels, LeaseId, Mode, NodeRole, Refusal, RequestId, Requester,
    ResourceAddress, Role, Selector, Target, Ttl,
};
use crate::service::Coordinator;
use crate::service::views::{
    LeaseView, NodeView, Readiness, Released, RequestState, RequestView, ResourceCounts, ResourceView, StatusView,
    WorkerView,
};
use crate::trust::{Tokens, admin_token};

pub(super) const REQUEST: &str = "req_0198f3a0-0000-7000-8000-000000000000";

/// Knows every resource but `gone`, every lease but `gone`, and writes down what it was asked.
#[derive(Default)]
pub(super) struct Fake {
    pub asked: Mutex<Vec<String>>,
    pub ready: bool,
    /// Set off when a long poll has begun.
    pub polled: Notify,
    /// Lets `workers` answer.
    pub release: Notify,
}

impl Fake {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    pub fn last(&self) -> String {
        self.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

fn lease(id: &str, holder: Requester) -> LeaseView {
    LeaseView {
        id: id.parse().unwrap(),
        request_id: REQUEST.parse().unwrap(),
        resource_id: "pixel".parse().unwrap(),
        mode: Mode::Exclusive,
        owner_id: holder.owner(),
        holder_id: holder,
        granted_at: Timestamp::UNIX_EPOCH,
        renewed_at: Timestamp::UNIX_EPOCH,
        ttl_ms: 1000,
        expires_at: Timestamp::UNIX_EPOCH,
        expires_in_ms: 1000,
        id_chosen_by_requester: false,
        fence: Fence(7),
        note: None,
        labels: Labels::new(),
        environment: BTreeMap::new(),
        worker: None,
    }
}

fn request(state: RequestState) -> RequestView {
    let error = Refusal::new(Code::NoCapacity, "all are held").with("availableAt", "soon");
    RequestView {
        id: REQUEST.parse().unwrap(),
        state,
        created_at: Timestamp::UNIX_EPOCH,
        lease: (state == RequestState::Granted).then(|| lease("lse_1", "ci".parse().unwrap())),
        error: (state == RequestState::Failed).then(|| error.retry_after(Duration::from_secs(9))),
    }
}

fn resource(id: &str) -> ResourceView {
    ResourceView {
        id: id.parse().unwrap(),
        labels: Labels::new(),
        state: DeviceState::Available,
        fence: Fence(0),
        max_shared: 1,
        worker: None,
        reachable: None,
        leases: Vec::new(),
    }
}

fn known(id: &LeaseId) -> Result<(), Refusal> {
    match id.as_str() {
        "gone" => Err(Refusal::new(Code::UnknownLease, "no active lease gone").with("leaseId", "gone")),
        _ => Ok(()),
    }
}

#[async_trait]
impl Coordinator for Fake {
    async fn acquire(&self, _: &Caller, ask: Ask) -> Result<LeaseView, Refusal> {
        let key = ask.key.as_ref().map_or("-", |key| key.as_str());
        self.note(format!("acquire {} for {} ttl {:?} key {key}", ask.target, ask.requester, ask.ttl));
        match ask.target.to_string().as_str() {
            "gone" => Err(Refusal::new(Code::UnknownResource, "no resource gone")),
            "held" => Err(Refusal::new(Code::ResourceUnavailable, "held is leased").with("availableAt", "soon")),
            _ => Ok(lease(ask.lease_id.as_ref().map_or("lse_1", |id| id.as_str()), ask.requester)),
        }
    }

    async fn request(&self, _: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal> {
        self.note(format!("request {} within {bound:?}", ask.target));
        match &ask.target {
            Target::Select(selector) if selector.to_string() == "os=none" => Ok(request(RequestState::Failed)),
            Target::Select(selector) if selector.to_string() == "os=busy" => Ok(request(RequestState::Waiting)),
            _ => Ok(request(RequestState::Granted)),
        }
    }

    async fn lease_request(&self, _: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal> {
        self.note(format!("lease_request {id} {wait:?}"));
        self.polled.notify_one();
        match wait {
            Duration::ZERO => Ok(request(RequestState::Failed)),
            _ => std::future::pending().await,
        }
    }

    async fn lease_requests(&self, _: &Caller) -> Result<Vec<RequestView>, Refusal> {
        Ok(vec![request(RequestState::Waiting)])
    }

    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal> {
        Ok(vec![lease("lse_1", Requester::local(caller.principal.clone(), None))])
    }

    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal> {
        known(id)?;
        Ok(lease(id.as_str(), Requester::local(caller.principal.clone(), None)))
    }

    async fn renew(
        &self,
        caller: &Caller,
        id: &LeaseId,
        ttl: Option<Ttl>,
        fence: Option<Fence>,
    ) -> Result<LeaseView, Refusal> {
        self.note(format!("renew {id} {:?} {fence:?}", ttl.map(Ttl::duration)));
        self.lease(caller, id).await
    }

    async fn release(&self, _: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal> {
        self.note(format!("release {id} {fence:?}"));
        known(id)?;
        Ok(Released::new(id.clone(), "pixel".parse().unwrap()))
    }

    async fn resources(&self, _: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal> {
        self.note(format!("resources {}", select.map_or("all".to_owned(), Selector::to_string)));
        Ok(vec![resource("pixel")])
    }

    async fn resource(&self, _: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        self.note(format!("resource {address}"));
        assert_ne!(address.id.as_str(), "boom", "a resource that makes the handler panic");
        Ok(resource(address.id.as_str()))
    }

    async fn workers(&self, _: &Caller) -> Result<Vec<WorkerView>, Refusal> {
        self.polled.notify_one();
        self.release.notified().await;
        Ok(Vec::new())
    }

    async fn status(&self, _: &Caller) -> Result<StatusView, Refusal> {
        Ok(StatusView {
            node: NodeView {
                name: "gateway".parse().unwrap(),
                role: NodeRole::Gateway,
                version: "0".to_owned(),
                started_at: Timestamp::UNIX_EPOCH,
                ready: self.ready,
            },
            resources: ResourceCounts::default(),
            leases: 0,
            waiting: 0,
            workers: None,
        })
    }

    async fn readiness(&self) -> Readiness {
        let reasons = if self.ready { Vec::new() } else { vec!["rebuilding".to_owned()] };
        Readiness { ready: self.ready, reasons, workers: None }
    }
}

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
        let app = App { coordinator, tokens: Arc::new(tokens), rules: LeaseRules::default(), clock: Clock::system() };
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
        assert_eq!(parts.headers["content-type"], "application/json", "{:?}", parts.status);
        let body = if head { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Told { status: parts.status, headers: parts.headers, body }
    }

    pub async fn call(&self, method: &str, path: &str) -> Told {
        self.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Told {
        self.call("GET", path).await
    }

    /// Sends JSON, whatever `body` is.
    pub async fn post(&self, path: &str, body: &str) -> Told {
        let request = Request::post(path).header("content-type", "application/json; charset=utf-8");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Asks over the network with a token.
    pub async fn with_token(&self, method: &str, path: &str, authorization: &str) -> Told {
        let request = Request::builder().method(method).uri(path).header("authorization", authorization);
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::Network);
        self.send(request).await
    }
}
