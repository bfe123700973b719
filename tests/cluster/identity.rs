//! One device at two workers: while one has it leased, the other holds it absent (SPEC §7).

use std::collections::BTreeMap;
use std::time::Duration;

use berth::link::serve;
use berth::model::{Caller, Code, DeviceIdentity, DeviceState, NodeName, ResourceId, WaitingFor};
use berth::service::views::RequestState;
use berth::wire::call::{Answer, Call, Wait};
use berth::wire::report::{Changed, ResourceReport};
use tokio::sync::mpsc;

use crate::chosen_id::reported;
use crate::lab::{Lab, acquire, eventually};
use crate::liar::{Liar, report};
use crate::scripted::{Scripted, dispatch};

const MINUTE: Duration = Duration::from_secs(60);

type List = BTreeMap<ResourceId, NodeName>;

/// A phone that is plugged in somewhere, leased or not.
fn phone(resource: &str, leased: bool) -> ResourceReport {
    let lease = || reported("lse_1", resource, "local");
    ResourceReport {
        labels: [("platform".parse().unwrap(), "phone".parse().unwrap())].into(),
        identity: Some(DeviceIdentity { driver: "adb".to_owned(), serial: "A1".to_owned() }),
        failure: None,
        leases: leased.then(lease).into_iter().collect(),
        ..report(resource, vec![])
    }
}

/// A worker in the place of one of the lab's, and what it is told to be leased elsewhere.
struct Rack {
    liar: Liar,
    lists: mpsc::Receiver<List>,
    number: u64,
}

impl Rack {
    async fn join(lab: &Lab, name: &str, phone: ResourceReport) -> Self {
        let liar = Liar::join(lab, name, "spare", vec![]).await;
        let (told, lists) = mpsc::channel(64);
        let streams = liar.link.streams();
        tokio::spawn(async move {
            let (writer, reader) = streams.calls().await.unwrap();
            let _ = serve::serve(writer, reader, |call| {
                let answer = match call {
                    Call::Elsewhere { resources } => {
                        told.try_send(resources).unwrap();
                        Answer::Elsewhere
                    }
                    _ => Answer::Cancelled,
                };
                async move { Some((answer, 0)) }
            })
            .await;
        });
        let mut rack = Self { liar, lists, number: 0 };
        rack.reports(phone).await;
        rack
    }

    async fn reports(&mut self, phone: ResourceReport) {
        self.number += 1;
        self.liar.changes(self.number, Changed::Resource(phone)).await;
    }

    /// The next list that it is told, as `resource = worker`.
    async fn told(&mut self) -> Vec<String> {
        let list = tokio::time::timeout(MINUTE, self.lists.recv()).await.expect("a list in time").unwrap();
        list.iter().map(|(resource, worker)| format!("{resource} = {worker}")).collect()
    }

    async fn is_told_nothing(&mut self) {
        assert!(tokio::time::timeout(Duration::from_secs(3), self.lists.recv()).await.is_err());
    }
}

async fn state(lab: &Lab, resource: &str) -> (DeviceState, Option<String>) {
    let shown = lab.gateway().resource(&Caller::admin(), &resource.parse().unwrap()).await.unwrap();
    (shown.state, shown.reason)
}

async fn becomes(lab: &Lab, resource: &str, expected: DeviceState) -> Option<String> {
    eventually("the gateway shows it", || async {
        let (state, reason) = state(lab, resource).await;
        (state == expected).then_some(reason)
    })
    .await
}

/// A lab whose workers are both out of the way.
async fn lab() -> Lab {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    lab.stop("rack-2").await;
    lab
}

#[tokio::test(start_paused = true)]
async fn while_one_worker_has_a_device_leased_the_other_that_sees_it_holds_it_absent() {
    let mut lab = lab().await;
    let mut one = Rack::join(&lab, "rack-1", phone("phone-a", true)).await;
    let mut two = Rack::join(&lab, "rack-2", phone("phone-b", false)).await;
    assert_eq!(two.told().await, ["phone-b = rack-1"]);
    assert_eq!(becomes(&lab, "phone-b", DeviceState::Absent).await.as_deref(), Some("leased on rack-1"));
    let waits = lab.lease("job-1", "platform=phone").await.unwrap();
    assert_eq!(waits.state, RequestState::Waiting, "it is placed on neither");
    assert_eq!(waits.waiting_for, Some(WaitingFor::Leased));
    // A new gateway finds it in the reports.
    drop((one, two));
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    one = Rack::join(&lab, "rack-1", phone("phone-a", true)).await;
    two = Rack::join(&lab, "rack-2", phone("phone-b", false)).await;
    assert_eq!(two.told().await, ["phone-b = rack-1"]);
    one.reports(phone("phone-a", false)).await;
    assert_eq!(two.told().await, [""; 0]);
    becomes(&lab, "phone-b", DeviceState::Available).await;
    one.is_told_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_leases_on_one_device_neither_is_ended_and_the_first_that_ends_leaves_it_to_the_other() {
    let lab = lab().await;
    let mut one = Rack::join(&lab, "rack-1", phone("phone-a", true)).await;
    let mut two = Rack::join(&lab, "rack-2", phone("phone-b", true)).await;
    one.is_told_nothing().await;
    two.is_told_nothing().await;
    assert_eq!(becomes(&lab, "phone-b", DeviceState::Leased).await, None);
    one.reports(phone("phone-a", false)).await;
    assert_eq!(one.told().await, ["phone-a = rack-2"]);
    // The worker that has it leased goes away: it may still have it, but not for ever.
    two.reports(phone("phone-b", true)).await;
    drop(two);
    one.is_told_nothing().await;
    tokio::time::sleep(MINUTE * 10).await;
    assert_eq!(state(&lab, "phone-a").await.0, DeviceState::Absent, "the lease may have been renewed within its grace");
    tokio::time::sleep(MINUTE * 3).await;
    assert_eq!(one.told().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_holds_back_what_is_leased_elsewhere_from_its_own_clients_too() {
    let mut lab = Scripted::start(&[]).await;
    let list = |worker: &str| List::from([("pixel".parse().unwrap(), worker.parse().unwrap())]);
    assert_eq!(lab.call(Call::Elsewhere { resources: list("rack-2") }).await.0, Answer::Elsewhere);
    let local = async |lab: &Scripted| {
        lab.worker().acquire(&Caller::admin(), acquire("local", "pixel", MINUTE)).await.map(|_| ())
    };
    let refused = local(&lab).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceUnavailable, "{refused:?}");
    let shown = lab.worker().resource(&Caller::admin(), &"pixel".parse().unwrap()).await.unwrap();
    assert_eq!((shown.state, shown.reason.as_deref()), (DeviceState::Absent, Some("leased on rack-2")));
    let Changed::Resource(said) = lab.change().await else { panic!("a resource") };
    assert_eq!(said.device.unwrap().state, DeviceState::Absent);
    let asked = dispatch("gw:gateway:ci", Wait::Never);
    assert_eq!(lab.refused(Call::Dispatch(asked)).await.code, Code::ResourceUnavailable);
    assert_eq!(lab.call(Call::Elsewhere { resources: List::new() }).await.0, Answer::Elsewhere);
    local(&lab).await.unwrap();
}

async fn state_there(lab: &Scripted) -> DeviceState {
    lab.worker().resource(&Caller::admin(), &"pixel".parse().unwrap()).await.unwrap().state
}

/// A worker that has been told that its device is leased on another.
async fn told() -> (Scripted, Call) {
    let lab = Scripted::start(&[]).await;
    let call = Call::Elsewhere { resources: List::from([("pixel".parse().unwrap(), "rack-2".parse().unwrap())]) };
    lab.call(call.clone()).await;
    let absent = || async { (state_there(&lab).await == DeviceState::Absent).then_some(()) };
    eventually("it is held absent", absent).await;
    (lab, call)
}

#[tokio::test(start_paused = true)]
async fn the_gateways_word_is_good_for_a_minute_after_its_link() {
    let (mut lab, _) = Box::pin(told()).await;
    lab.hang_up();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(state_there(&lab).await, DeviceState::Absent);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(state_there(&lab).await, DeviceState::Available);
}

#[tokio::test(start_paused = true)]
async fn a_new_link_that_says_it_again_holds_on_and_one_that_says_nothing_lets_go() {
    let (mut lab, call) = Box::pin(told()).await;
    lab.hang_up();
    lab.let_in().await;
    lab.call(call).await;
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(state_there(&lab).await, DeviceState::Absent);
    lab.hang_up();
    lab.let_in().await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(state_there(&lab).await, DeviceState::Absent);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(state_there(&lab).await, DeviceState::Available);
}

#[tokio::test(start_paused = true)]
async fn the_gateways_word_ends_with_the_run_of_the_worker() {
    let (mut lab, _) = Box::pin(told()).await;
    lab.restart_worker().await;
    assert_eq!(state_there(&lab).await, DeviceState::Available);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_claims_of_an_environment_is_taken_only_where_it_looks_like_variables() {
    let lab = lab().await;
    let claimed = [("ANDROID_SERIAL", "A1"), ("LD-PRELOAD", "x"), ("lower", "x"), ("LINES", "a\nb")];
    let claims = ResourceReport {
        environment: claimed.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        leases: vec![reported("lse_1", "phone-a", "gw:gateway:ci")],
        ..phone("phone-a", false)
    };
    let _rack = Rack::join(&lab, "rack-1", claims).await;
    let leases = eventually("the lease is there", || async { Some(lab.leases().await).filter(|it| !it.is_empty()) });
    let environment = leases.await.remove(0).environment;
    assert_eq!(environment, BTreeMap::from([("ANDROID_SERIAL".to_owned(), "A1".to_owned())]));
}
