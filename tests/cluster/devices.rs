//! Devices that are prepared, reset and fail, behind a gateway (SPEC §7, §9).

use std::time::Duration;

use berth::model::{Ask, Caller, Code, DeviceState, RenewAsk, ResourceAddress, WaitingFor};
use berth::service::ask::EventQuery;
use berth::service::views::{Connection, RequestState, RequestView, ResourceView};
use serde_json::Value;

use crate::events::{assert_every_story_ends_once, log};
use crate::hands::{Jobs, scripted};
use crate::lab::{Lab, RACK_1, acquire, active, eventually, granted, request, request_now};

const MINUTE: Duration = Duration::from_secs(60);
const PHONES: &str = "platform=android";

const FILE: &str = r#"
[lab]
name = "cluster"
[gateway]
name = "gateway"
api = "127.0.0.1:0"
link = "127.0.0.1:0"
[[worker]]
name = "rack-1"
[[worker.resource]]
id = "phone-1"
labels = { platform = "android", slot = "1" }
driver = { kind = "command", prepare = ["prepare"], reset = ["reset"], prepare_timeout = "2m" }
[[worker]]
name = "rack-2"
[[worker.resource]]
id = "phone-2"
labels = { platform = "android", slot = "2" }
driver = { kind = "command", prepare = ["prepare"], reset = ["reset"], prepare_timeout = "2m" }
"#;

const WATCHED: &str = r#"
[lab]
name = "cluster"
[gateway]
name = "gateway"
api = "127.0.0.1:0"
link = "127.0.0.1:0"
[[worker]]
name = "rack-1"
[[worker.resource]]
id = "watched"
labels = { platform = "watch" }
driver = { kind = "command", health = ["look"], health_interval = "10s" }
lock_delay = "90s"
"#;

async fn start() -> (Lab, Jobs) {
    start_of(FILE).await
}

async fn start_of(file: &str) -> (Lab, Jobs) {
    let (hands, jobs) = scripted();
    (Lab::with_hands(file, hands).await, jobs)
}

/// Asks, and hears within two seconds that it waits.
async fn wait(lab: &Lab, ask: Ask) -> RequestView {
    let waits = lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.unwrap();
    assert_eq!(waits.state, RequestState::Waiting);
    waits
}

async fn now(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, Duration::ZERO).await.unwrap()
}

/// The request as it is settled, within a minute.
async fn settled(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, MINUTE).await.unwrap()
}

async fn failed(lab: &Lab, request: &RequestView) -> Code {
    let request = settled(lab, request).await;
    assert_eq!(request.state, RequestState::Failed, "{request:?}");
    request.error.unwrap().code
}

async fn resource(lab: &Lab, resource: &str) -> ResourceView {
    lab.gateway().resource(&Caller::admin(), &resource.parse().unwrap()).await.unwrap()
}

/// Waits until the gateway shows a resource like this.
async fn shows(lab: &Lab, id: &str, state: DeviceState) -> ResourceView {
    eventually("the gateway shows it", || async {
        Some(resource(lab, id).await).filter(|resource| resource.state == state)
    })
    .await
}

/// The reasons of `lease.rejected`, with their codes.
async fn rejections(lab: &Lab) -> Vec<(String, String)> {
    let field = |payload: &serde_json::Map<String, Value>, name| payload[name].as_str().unwrap().to_owned();
    let log = log(lab).await;
    assert_every_story_ends_once(&log);
    let rejected = log.iter().filter(|event| event.worker_id.is_none() && event.event.as_str() == "lease.rejected");
    rejected.map(|event| (field(&event.payload, "reason"), field(&event.payload, "code"))).collect()
}

fn keyed(ask: Ask) -> Ask {
    Ask { key: Some("k-1".parse().unwrap()), ..ask }
}

fn device_failed() -> Vec<(String, String)> {
    vec![("device-failed".to_owned(), "DEVICE_FAILED".to_owned())]
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_device_cannot_be_made_ready_goes_to_another_worker_once_and_then_fails_for_good() {
    let (lab, jobs) = start().await;
    let waits = wait(&lab, keyed(request("job-1", PHONES, None))).await;
    jobs.is("prepare phone-1").await.fails();
    let (one, other) = (jobs.next().await, jobs.next().await);
    let mut began = [one.name(), other.name()];
    began.sort();
    assert_eq!(began, ["prepare phone-2", "reset phone-1"], "the device is reset while the request goes on");
    let (prepare, reset) = if one.name() == "prepare phone-2" { (one, other) } else { (other, one) };
    reset.succeeds();
    shows(&lab, "phone-1", DeviceState::Available).await;
    assert_eq!(now(&lab, &waits).await.waiting_for, Some(WaitingFor::Preparing));
    prepare.fails();
    assert_eq!(failed(&lab, &waits).await, Code::DeviceFailed);
    jobs.is("reset phone-2").await.succeeds();
    // The key goes on standing for that.
    let again = lab.ask(keyed(request("job-1", PHONES, None))).await.unwrap_err();
    assert_eq!(again.code, Code::DeviceFailed);
    assert!(jobs.none_for(MINUTE).await);
    eventually("it is told", || async { (rejections(&lab).await == device_failed()).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_device_is_the_requests_when_it_is_made_ready() {
    let (lab, jobs) = start().await;
    let waits = wait(&lab, request("job-1", PHONES, None)).await;
    jobs.is("prepare phone-1").await.fails();
    let (one, other) = (jobs.next().await, jobs.next().await);
    let prepare = if one.name() == "prepare phone-2" { one } else { other };
    prepare.succeeds();
    assert_eq!(granted(&settled(&lab, &waits).await).resource_id.as_str(), "phone-2");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_one_match_fails_ends_at_once_and_one_that_will_not_wait_hears_of_the_device() {
    let (lab, jobs) = start().await;
    let only = wait(&lab, request("job-1", "slot=1", None)).await;
    jobs.is("prepare phone-1").await.fails();
    assert_eq!(failed(&lab, &only).await, Code::DeviceFailed);
    let reset = jobs.is("reset phone-1").await;
    let taken = wait(&lab, request("job-2", PHONES, None)).await;
    let prepare = jobs.is("prepare phone-2").await;
    reset.succeeds();
    shows(&lab, "phone-1", DeviceState::Available).await;
    let hasty = wait(&lab, request_now("job-3", PHONES)).await;
    jobs.is("prepare phone-1").await.fails();
    assert_eq!(failed(&lab, &hasty).await, Code::DeviceFailed, "that the other is taken is not why");
    prepare.succeeds();
    granted(&settled(&lab, &taken).await);
}

#[tokio::test(start_paused = true)]
async fn one_by_name_waits_for_its_device_to_be_made_ready_and_fails_with_it() {
    let (lab, jobs) = start().await;
    let by_name = |requester: &str| {
        let ask = acquire(requester, "phone-1", MINUTE);
        let wait = berth::model::WaitPolicy::Wait { timeout: None };
        keyed(Ask { door: berth::model::Door::Request, wait, ..ask })
    };
    let waits = wait(&lab, by_name("job-1")).await;
    let prepare = jobs.is("prepare phone-1").await;
    assert_eq!(now(&lab, &waits).await.waiting_for, Some(WaitingFor::Preparing));
    prepare.fails();
    assert_eq!(failed(&lab, &waits).await, Code::DeviceFailed);
    assert_eq!(lab.ask(by_name("job-1")).await.unwrap_err().code, Code::DeviceFailed, "the key stands for it");
    jobs.is("reset phone-1").await.succeeds();
    shows(&lab, "phone-1", DeviceState::Available).await;
    eventually("it is told", || async { (rejections(&lab).await == device_failed()).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_waits_for_a_device_to_be_made_ready_and_its_lease_is_not_shorter_for_that() {
    let (lab, jobs) = start().await;
    let ready = async {
        let prepare = jobs.is("prepare phone-1").await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        prepare.succeeds();
    };
    let (lease, ()) = tokio::join!(lab.acquire("job-1", "phone-1", MINUTE), ready);
    let lease = lease.unwrap();
    assert!(lease.expires_in_ms > 59_000, "{lease:?}");
    lab.gateway().release(&Caller::admin(), &lease.id, None).await.unwrap();
    jobs.is("reset phone-1").await.succeeds();
    shows(&lab, "phone-1", DeviceState::Available).await;
    let gateway = lab.gateway();
    let ask = async || gateway.acquire(&Caller::admin(), keyed(acquire("job-1", "phone-1", MINUTE))).await;
    let fails = async { jobs.is("prepare phone-1").await.fails() };
    let (refused, ()) = tokio::join!(ask(), fails);
    assert_eq!(refused.unwrap_err().code, Code::DeviceFailed);
    jobs.is("reset phone-1").await.succeeds();
    shows(&lab, "phone-1", DeviceState::Available).await;
    assert_eq!(ask().await.unwrap_err().code, Code::DeviceFailed, "the key stands for it");
    assert!(jobs.none_for(MINUTE).await);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_shown_waiting_while_a_device_is_made_ready_and_its_lease_begins_after_that() {
    let (lab, jobs) = start().await;
    let ask = Ask { ttl: MINUTE, ..request("job-1", PHONES, None) };
    let waits = wait(&lab, ask).await;
    let prepare = jobs.is("prepare phone-1").await;
    assert_eq!((waits.waiting_for, waits.position), (Some(WaitingFor::Preparing), Some(1)));
    let open = lab.gateway().lease_requests(&Caller::admin()).await.unwrap();
    assert_eq!(open[0].waiting_for, Some(WaitingFor::Preparing));
    assert_eq!(resource(&lab, "phone-1").await.state, DeviceState::Preparing);
    tokio::time::sleep(MINUTE).await;
    prepare.succeeds();
    let lease = granted(&settled(&lab, &waits).await);
    assert!(lease.expires_in_ms > 59_000, "{lease:?}");
    let kept = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert!(lease.expires_at <= kept[0].expires_at + Duration::from_millis(1), "{lease:?} {kept:?}");
    assert_eq!(lab.leases().await[0].expires_at, lease.expires_at);
}

#[tokio::test(start_paused = true)]
async fn a_prepare_whose_gateway_is_cut_off_is_stopped_and_the_request_goes_on_elsewhere() {
    let (lab, jobs) = start().await;
    let waits = wait(&lab, request("job-1", PHONES, None)).await;
    let prepare = jobs.is("prepare phone-1").await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    eventually("the link is down", || async {
        let workers = lab.gateway().workers(&Caller::admin()).await.unwrap();
        (workers[0].connection == Connection::Disconnected).then_some(())
    })
    .await;
    lab.weather.clear();
    prepare.stops().await;
    let (one, other) = (jobs.next().await, jobs.next().await);
    let mut began = [one.name(), other.name()];
    began.sort();
    assert_eq!(began, ["prepare phone-2", "reset phone-1"]);
    one.succeeds();
    other.succeeds();
    assert_eq!(granted(&settled(&lab, &waits).await).resource_id.as_str(), "phone-2");
    assert!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().is_empty());
    shows(&lab, "phone-1", DeviceState::Available).await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_starts_anew_while_a_device_is_made_ready_finds_the_lease_under_its_key() {
    let (mut lab, jobs) = start().await;
    let ask = || keyed(Ask { ttl: MINUTE * 10, ..request("job-1", PHONES, None) });
    wait(&lab, ask()).await;
    let prepare = jobs.is("prepare phone-1").await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    shows(&lab, "phone-1", DeviceState::Preparing).await;
    prepare.succeeds();
    let lease = eventually("the lease is found", || async { lab.leases().await.pop() }).await;
    assert_eq!(lease.resource_id.as_str(), "phone-1");
    assert_eq!(granted(&lab.ask(ask()).await.unwrap()).fence, lease.fence, "the same lease for the same key");
    lab.renew(&lease.id).await.unwrap();
    assert!(jobs.none_for(MINUTE).await);
}

#[tokio::test(start_paused = true)]
async fn a_device_in_quarantine_gets_nobody_until_an_operator_clears_it_through_the_gateway() {
    let (lab, jobs) = start().await;
    let first = wait(&lab, request("job-1", "slot=1", None)).await;
    jobs.is("prepare phone-1").await.succeeds();
    let lease = granted(&settled(&lab, &first).await);
    lab.gateway().release(&Caller::admin(), &lease.id, None).await.unwrap();
    let reset = jobs.is("reset phone-1").await;
    shows(&lab, "phone-1", DeviceState::Resetting).await;
    let waits = wait(&lab, request("job-2", "slot=1", None)).await;
    assert_eq!(waits.waiting_for, Some(WaitingFor::Resetting));
    reset.fails();
    let shown = shows(&lab, "phone-1", DeviceState::Quarantined).await;
    assert!(shown.reason.unwrap().contains("exited with 3") && shown.until.is_some());
    let told = now(&lab, &waits).await;
    assert_eq!((told.waiting_for, told.until.is_some()), (Some(WaitingFor::Quarantined), true));
    let other = wait(&lab, request("job-3", PHONES, None)).await;
    jobs.is("prepare phone-2").await.succeeds();
    granted(&settled(&lab, &other).await);
    let phone: ResourceAddress = "phone-1".parse().unwrap();
    let agent = Caller { role: berth::model::Role::Agent, ..Caller::admin() };
    let refused = lab.gateway().clear(&agent, &phone).await.unwrap_err();
    assert_eq!(refused.code, Code::InsufficientPermissions);
    lab.gateway().clear(&Caller::admin(), &phone).await.unwrap();
    jobs.is("prepare phone-1").await.succeeds();
    granted(&settled(&lab, &waits).await);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cools_after_an_expiry_says_until_when_at_the_gateway() {
    let (lab, _jobs) = start_of(WATCHED).await;
    lab.acquire("job-1", "watched", Duration::from_secs(20)).await.unwrap();
    let cooling = shows(&lab, "watched", DeviceState::Cooling).await;
    let began = lab.clock.now();
    let ends = cooling.until.unwrap().duration_since(began.wall);
    assert!(ends.as_secs() > 60 && ends.as_secs() <= 90, "{ends:?}");
    let waits = wait(&lab, request("job-2", "platform=watch", None)).await;
    let near = waits.until.unwrap().duration_since(cooling.until.unwrap()).as_secs();
    assert_eq!((waits.waiting_for, near), (Some(WaitingFor::Cooling), 0));
    granted(&lab.gateway().lease_request(&Caller::admin(), &waits.id, MINUTE * 2).await.unwrap());
    let took = lab.clock.now().run.left(began.run);
    assert!(took > MINUTE && took < Duration::from_secs(92), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_through_the_gateway_that_its_device_fails_and_is_as_it_should_be_again() {
    let (lab, jobs) = start_of(WATCHED).await;
    let lease = lab.acquire("job-1", "watched", MINUTE * 30).await.unwrap();
    for _ in 0..2 {
        jobs.is("health watched").await.fails();
    }
    let query = EventQuery { lease: Some(lease.id.clone()), limit: 1_000, ..EventQuery::default() };
    let heard = async |word: &str| {
        eventually("the holder's stream has it", || async {
            let events = lab.gateway().events(&Caller::admin(), &query, Duration::ZERO).await.unwrap().events;
            let is_it = |event: &berth::service::views::EventView| event.payload.get("device") == Some(&word.into());
            events.iter().any(is_it).then_some(())
        })
        .await;
    };
    heard("device_unhealthy").await;
    let renew = async || lab.gateway().renew(&Caller::admin(), &lease.id, RenewAsk::default()).await.unwrap();
    let notices = renew().await.notices;
    let told: Vec<&str> = notices.iter().map(|notice| notice.event.as_str()).collect();
    assert_eq!((told, notices[0].message.contains("exited with 3")), (vec!["device_unhealthy"], true));
    assert!(renew().await.notices.is_empty(), "each is told once");
    for _ in 0..2 {
        jobs.is("health watched").await.succeeds();
    }
    heard("device_recovered").await;
    assert_eq!(renew().await.notices.len(), 1);
    let kept = active(berth::service::answers::Acquired::Active { lease: Box::new(renew().await.lease) });
    assert_eq!(kept.fence, lease.fence, "the lease is kept all along");
}
