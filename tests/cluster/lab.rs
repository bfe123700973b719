//! A lab in this process.

use std::sync::Arc;
use std::time::Duration;

use berth::admission::LeaseRules;
use berth::clock::Clock;
use berth::config::{Effective, Lab as LabFile, Source};
use berth::driver::{Guard, Hands};
use berth::model::{Ask, Caller, LeaseId, Refusal, RenewAsk, RequestId, ResourceAddress, WaitPolicy};
use berth::node::{self, Running, Surroundings};
use berth::service::Coordinator;
use berth::service::answers::Acquired;
use berth::service::ask::{AcquireBody, Headers, RequestBody};
use berth::service::views::{LeaseView, RequestState, RequestView};

use crate::weather::Weather;

pub const FILE: &str = r#"
[lab]
name = "cluster"
[gateway]
name = "gateway"
api = "127.0.0.1:0"
link = "127.0.0.1:0"
[[worker]]
name = "rack-1"
[[worker.resource]]
id = "pixel"
labels = { platform = "android", os = "15" }
[[worker]]
name = "rack-2"
[[worker.resource]]
id = "board-1"
labels = { platform = "linux", slot = "1" }
[[worker.resource]]
id = "board-2"
labels = { platform = "linux", slot = "2" }
"#;

/// Sockets are opened in the order of the lab file.
pub const GATEWAY: usize = 0;
pub const RACK_1: usize = 1;

/// The program guards what its nodes run; a test's own program cannot.
pub fn guard() -> Guard {
    Guard::new(env!("CARGO_BIN_EXE_berth"))
}

/// One gateway, two workers, their directory, clock and weather.
pub struct Lab {
    pub clock: Clock,
    pub weather: Weather,
    pub file: LabFile,
    nodes: Vec<Running>,
    hands: Option<Arc<dyn Hands>>,
    _directory: tempfile::TempDir,
}

impl Lab {
    /// Starts the lab and waits until it admits requests.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same with other values in the lab file, as variables name them.
    pub async fn with(variables: &[(&str, &str)]) -> Self {
        Self::of(FILE, variables).await
    }

    /// The same with another lab file, whose gateway is its first node.
    pub async fn of(text: &str, variables: &[(&str, &str)]) -> Self {
        Self::launch(text, variables, None).await
    }

    /// The same whose devices are in a test's hands.
    pub async fn with_hands(text: &str, hands: Arc<dyn Hands>) -> Self {
        Self::launch(text, &[], Some(hands)).await
    }

    async fn launch(text: &str, variables: &[(&str, &str)], hands: Option<Arc<dyn Hands>>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.toml");
        std::fs::write(&path, text).unwrap();
        let state = directory.path().join("state").to_string_lossy().into_owned();
        let state_dir = [("BERTH_LAB__STATE_DIR".to_owned(), state)];
        let others = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let file = Effective::load(Source::File(path), state_dir.into_iter().chain(others)).unwrap().lab;
        // A year in which the certificates that are made now are valid.
        let clock = Clock::tokio(Clock::system().now().wall);
        let weather = Weather::default();
        let around =
            Surroundings { clock: clock.clone(), udp: weather.udp(), guard: Some(guard()), hands: hands.clone() };
        let nodes = node::start(&file, None, &around).await.unwrap();
        let mut lab = Self { clock, weather, file, nodes, hands, _directory: directory };
        // What was given to the gateway is what a second life of it must have.
        let link = lab.nodes[0].link_address().unwrap();
        let gateway = lab.file.gateway.as_mut().unwrap();
        (gateway.link, gateway.address) = (link, link.to_string());
        lab.ready().await;
        lab
    }

    pub fn gateway(&self) -> Arc<dyn Coordinator> {
        Arc::clone(&self.node("gateway").coordinator)
    }

    pub fn worker(&self, name: &str) -> Arc<dyn Coordinator> {
        Arc::clone(&self.node(name).coordinator)
    }

    fn node(&self, name: &str) -> &Running {
        self.nodes.iter().find(|node| node.name.as_str() == name).unwrap()
    }

    /// Stops one node.
    pub async fn stop(&mut self, name: &str) {
        let index = self.nodes.iter().position(|node| node.name.as_str() == name).unwrap();
        self.nodes.remove(index).stop().await;
    }

    /// Tells one node to take no more requests.
    pub fn refuse_requests(&self, name: &str) {
        self.node(name).refuse_requests();
    }

    /// Starts one node again.
    pub async fn restart(&mut self, name: &str) {
        let around = Surroundings {
            clock: self.clock.clone(),
            udp: self.weather.udp(),
            guard: Some(guard()),
            hands: self.hands.clone(),
        };
        let name = name.parse().unwrap();
        self.nodes.extend(node::start(&self.file, Some(&name), &around).await.unwrap());
    }

    /// Waits until the gateway admits requests.
    pub async fn ready(&self) {
        let gateway = self.gateway();
        eventually("the gateway is ready", || async { gateway.readiness().await.ready.then_some(()) }).await;
    }

    pub async fn acquire(&self, requester: &str, resource: &str, ttl: Duration) -> Result<LeaseView, Refusal> {
        self.gateway().acquire(&Caller::admin(), acquire(requester, resource, ttl)).await.map(active)
    }

    /// Asks, and waits a minute for the end of it.
    pub async fn ask(&self, ask: Ask) -> Result<RequestView, Refusal> {
        ask_to_the_end(&*self.gateway(), ask).await
    }

    /// Asks, as `POST /v1/lease-requests` does.
    pub async fn lease(&self, requester: &str, select: &str) -> Result<RequestView, Refusal> {
        let ask = request(requester, select, None);
        self.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await
    }

    pub async fn renew(&self, id: &LeaseId) -> Result<LeaseView, Refusal> {
        self.gateway().renew(&Caller::admin(), id, RenewAsk::default()).await.map(|renewed| renewed.lease)
    }

    pub async fn leases(&self) -> Vec<LeaseView> {
        self.gateway().leases(&Caller::admin()).await.unwrap()
    }
}

/// Asks, and waits a minute for the end of it.
pub async fn ask_to_the_end(node: &dyn Coordinator, ask: Ask) -> Result<RequestView, Refusal> {
    let caller = Caller::admin();
    let request = node.request(&caller, ask, Duration::from_secs(2)).await?;
    let request = match request.state {
        RequestState::Waiting => node.lease_request(&caller, &request.id, Duration::from_secs(60)).await?,
        _ => request,
    };
    request.error.clone().map_or(Ok(request), Err)
}

/// The lease of an acquire that did not have to wait.
pub fn active(acquired: Acquired) -> LeaseView {
    match acquired {
        Acquired::Active { lease } => *lease,
        Acquired::Pending(pending) => panic!("no lease: {pending:?}"),
    }
}

/// An ask for a named resource.
pub fn acquire(requester: &str, resource: &str, ttl: Duration) -> Ask {
    let body = AcquireBody {
        requester: Some(requester.parse().unwrap()),
        ttl_ms: Some(u64::try_from(ttl.as_millis()).unwrap().try_into().unwrap()),
        ..AcquireBody::default()
    };
    let resource: ResourceAddress = resource.parse().unwrap();
    body.into_ask(resource, &Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

/// A request by selector.
pub fn request(requester: &str, select: &str, lease_id: Option<&str>) -> Ask {
    let body = RequestBody {
        requester: Some(requester.parse().unwrap()),
        select: Some(select.parse().unwrap()),
        lease_id: lease_id.map(|id| id.parse().unwrap()),
        ..RequestBody::default()
    };
    body.into_ask(&Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

/// The same, not to wait.
pub fn request_now(requester: &str, select: &str) -> Ask {
    Ask { wait: WaitPolicy::NoWait, ..request(requester, select, None) }
}

/// The lease of a request that has been granted.
pub fn granted(request: &RequestView) -> LeaseView {
    assert_eq!(request.state, RequestState::Granted, "{request:?}");
    request.lease.clone().unwrap()
}

/// Looks every 10 ms of the paused clock until `look` finds something; gives up after two minutes of it.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..12_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}

/// A local client's request for a resource that is held: it waits.
pub async fn waiting_at(worker: &dyn Coordinator, requester: &str, resource: &str) -> RequestId {
    let body = RequestBody {
        requester: Some(requester.parse().unwrap()),
        resource_id: Some(resource.parse().unwrap()),
        ..RequestBody::default()
    };
    let ask = body.into_ask(&Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap();
    let request = worker.request(&Caller::admin(), ask, Duration::from_secs(2)).await.unwrap();
    assert_eq!(request.state, RequestState::Waiting);
    request.id
}
