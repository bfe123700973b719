//! Workers whose digest is not of what they have reported (SPEC §9 Reports).

use std::time::Duration;

use berth::model::{Caller, Code, DeviceState, Mode, RequestId};
use berth::service::views::{RequestState, ResourceView};
use berth::wire::digest::{of_resource, of_waiting};
use berth::wire::report::{Changed, ResourceReport};
use berth::wire::requests::WaitingRow;

use crate::chosen_id::reported;
use crate::lab::{Lab, eventually};
use crate::liar::{Liar, report};
use crate::said::Log;

const SECOND: Duration = Duration::from_secs(1);
/// How often a worker says what it comes to.
const EVERY: Duration = Duration::from_secs(5);

/// A lab whose first worker is one that says anything, with a free `pixel` and this request of the gateway's.
async fn lying(waiting: &[WaitingRow]) -> (Lab, Liar) {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let liar = Liar::join_with(&lab, "rack-1", "pixel", vec![], waiting, &[]).await;
    eventually("it is known", || async { (of_rack_1(&lab).await[0].reachable == Some(true)).then_some(()) }).await;
    (lab, liar)
}

async fn of_rack_1(lab: &Lab) -> Vec<ResourceView> {
    let all = lab.gateway().resources(&Caller::admin(), None).await.unwrap();
    all.into_iter().filter(|it| it.worker.as_ref().is_some_and(|worker| worker.as_str() == "rack-1")).collect()
}

fn comes_to(reports: &[ResourceReport]) -> u64 {
    reports.iter().map(of_resource).fold(0, |all, one| all ^ one)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_comes_to_something_else_than_it_has_reported_is_asked_anew_and_is_shown_as_it_then_says() {
    let lease = reported("mine", "tablet", "gw:gateway:admin/job");
    let waits = WaitingRow {
        request: RequestId::generate(),
        requester: "gw:gateway:admin/first".parse().unwrap(),
        resource: "pixel".parse().unwrap(),
        mode: Mode::Exclusive,
        attended: true,
        lease_id: None,
        key: None,
        fingerprint: berth::model::Fingerprint::of(
            &berth::model::Target::Resource("pixel".parse().unwrap()),
            Mode::Exclusive,
            None,
        ),
        joined_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let (lab, mut liar) = lying(std::slice::from_ref(&waits)).await;
    let gateway = lab.gateway();
    let first = || async { gateway.lease_request(&Caller::admin(), &waits.request, Duration::ZERO).await.unwrap() };
    assert_eq!(
        gateway.waiting_room(&Caller::admin(), &"tablet".parse().unwrap()).await.unwrap_err().code,
        Code::UnknownResource
    );
    let before = of_resource(&report("pixel", vec![])) ^ of_waiting(&waits);
    liar.comes_to(0, before).await;
    assert!(!liar.is_asked_anew(EVERY).await, "it is what it has reported");

    let now = [ResourceReport { drained: true, ..report("pixel", vec![]) }, report("tablet", vec![lease])];
    liar.comes_to(0, comes_to(&now)).await;
    assert!(liar.is_asked_anew(SECOND).await);
    assert_eq!(of_rack_1(&lab).await.len(), 1, "what it comes to says nothing of what it has");
    liar.shows(0, &now).await;
    let shown = eventually("the snapshot is taken in", || async {
        let shown = of_rack_1(&lab).await;
        (shown.len() == 2).then_some(shown)
    })
    .await;
    let states: Vec<_> = shown.iter().map(|it| (it.id.as_str(), it.state, it.leases.len())).collect();
    assert_eq!(states, [("pixel", DeviceState::Drained, 0), ("tablet", DeviceState::Leased, 1)]);
    assert_eq!(lab.leases().await[0].id.as_str(), "mine", "it is routed");
    let failed = first().await;
    assert_eq!((failed.state, failed.error.map(|error| error.code)), (RequestState::Failed, Some(Code::NodeRestarted)));
    liar.comes_to(0, comes_to(&now)).await;
    assert!(!liar.is_asked_anew(Duration::from_secs(60)).await, "now both say the same");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_comes_to_what_it_reports_is_asked_anew_ever_more_seldom_with_a_warning() {
    let log = Log::warnings();
    let (lab, mut liar) = lying(&[]).await;
    let mut asked = Vec::new();
    let begun = lab.clock.now().run;
    while asked.len() < 5 {
        liar.comes_to(0, 7).await;
        if liar.is_asked_anew(EVERY).await {
            asked.push(lab.clock.now().run.left(begun));
            liar.shows(0, &[report("pixel", vec![])]).await;
        }
    }
    let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, wanted) in pauses.iter().zip([30, 60, 120, 240]) {
        let wanted = wanted * SECOND;
        assert!(*pause >= wanted && *pause <= wanted + 2 * EVERY, "{pauses:?}");
    }
    assert!(log.has(&["WARN", "rack-1", "asking anew"]));
    assert_eq!(of_rack_1(&lab).await[0].reachable, Some(true), "nothing else comes of it");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_changes_go_missing_is_asked_anew_at_once_and_right_after_that_only_later() {
    let (lab, mut liar) = lying(&[]).await;
    let shown = |labels: [&str; 2]| {
        let mut shown = report("pixel", vec![]);
        shown.labels = labels.map(|label| (label.parse().unwrap(), "yes".parse().unwrap())).into();
        shown
    };
    liar.changes(2, Changed::Resource(shown(["a", "b"]))).await;
    assert!(liar.is_asked_anew(SECOND).await, "the first is missing");
    liar.shows(2, &[shown(["a", "b"])]).await;
    let begun = lab.clock.now().run;
    liar.changes(4, Changed::Resource(shown(["a", "c"]))).await;
    while !liar.is_asked_anew(EVERY).await {
        liar.comes_to(4, 7).await;
    }
    let pause = lab.clock.now().run.left(begun);
    assert!(pause >= 30 * SECOND && pause <= 30 * SECOND + 2 * EVERY, "{pause:?}");
    liar.shows(3, &[shown(["a", "b"])]).await;
    eventually("what came after the gap is taken in", || async {
        let seen = of_rack_1(&lab).await.remove(0);
        seen.labels.iter().any(|(key, _)| key.as_str() == "c").then_some(())
    })
    .await;
}
