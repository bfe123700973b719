//! Requests that wait at a worker since before the gateway's own start (SPEC §9 Named resources), cancelled while that
//! worker is away.

use std::time::Duration;

use berth::model::{Caller, LeaseId, WaitingFor};
use berth::service::views::{RequestState, RequestView};
use serde_json::Value;

use crate::events::{assert_every_story_ends_once, log};
use crate::lab::{Lab, RACK_1, eventually, granted, request};
use crate::named::{gives_back, held, look, named, room_at, waits};

/// A lab in which a local client holds `pixel` and one waits for it there that this life of the gateway has only found; the
/// worker is away.
async fn found() -> (Lab, LeaseId, RequestView) {
    let mut lab = Lab::start().await;
    let local = held(&lab).await;
    let view = waits(&lab, named("first", "pixel")).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let again = look(&lab, &view.id).await;
    assert_eq!((again.state, again.position), (RequestState::Waiting, Some(1)), "{again:?}");
    cut(&lab, &view).await;
    (lab, local, view)
}

/// Cuts the worker off, and waits until that is seen.
async fn cut(lab: &Lab, view: &RequestView) {
    lab.weather.cut(lab.weather.opened(RACK_1));
    eventually("its worker is away", || async {
        (look(lab, &view.id).await.waiting_for == Some(WaitingFor::Absent)).then_some(())
    })
    .await;
}

async fn cancel(lab: &Lab, view: &RequestView) {
    lab.gateway().cancel(&Caller::admin(), &view.id).await.unwrap();
    assert_eq!(look(lab, &view.id).await.state, RequestState::Cancelled);
}

/// Waits until nobody waits at the worker, and sees that nobody holds a thing there.
async fn nothing_is_left_there(lab: &Lab) {
    eventually("it is taken out", || async { room_at(lab).await.is_empty().then_some(()) }).await;
    let leases = || async { lab.worker("rack-1").leases(&Caller::admin()).await.unwrap() };
    eventually("what it may have got is released", || async { leases().await.is_empty().then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((leases().await, room_at(lab).await), (vec![], vec![]), "and so it stays");
}

/// How the gateway's log says that a request ended.
async fn assert_it_ended_as_cancelled(lab: &Lab, view: &RequestView) {
    let log = log(lab).await;
    let own = log.iter().filter(|event| event.worker_id.is_none());
    let of_it = own.filter(|event| event.payload.get("requestId") == Some(&Value::from(view.id.as_str())));
    let reasons: Vec<&Value> = of_it.filter_map(|event| event.payload.get("reason")).collect();
    assert_eq!(reasons, ["cancelled"]);
    assert_every_story_ends_once(&log);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_found_and_is_cancelled_while_its_worker_is_away_is_taken_out_when_that_is_back() {
    let (lab, local, view) = found().await;
    cancel(&lab, &view).await;
    granted(&lab.ask(request("first", "platform=linux", None)).await.unwrap());
    lab.weather.clear();
    eventually("it is taken out", || async { room_at(&lab).await.is_empty().then_some(()) }).await;
    assert_eq!(gives_back(&*lab.worker("rack-1"), &local).await, None, "nobody is served");
    nothing_is_left_there(&lab).await;
    assert_eq!(look(&lab, &view.id).await.state, RequestState::Cancelled);
    assert_it_ended_as_cancelled(&lab, &view).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_found_and_cancelled_keeps_nothing_though_its_turn_comes_before_its_worker_has_heard_so() {
    let (lab, local, view) = found().await;
    cancel(&lab, &view).await;
    assert_eq!(gives_back(&*lab.worker("rack-1"), &local).await, None, "without its gateway it is passed over");
    assert_eq!(room_at(&lab).await.len(), 1);
    lab.weather.clear();
    nothing_is_left_there(&lab).await;
    assert_eq!(look(&lab, &view.id).await.state, RequestState::Cancelled);
    assert_it_ended_as_cancelled(&lab, &view).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_found_and_cancelled_keeps_nothing_though_the_gateway_starts_anew_before_its_worker_is_back() {
    let (mut lab, local, view) = found().await;
    cancel(&lab, &view).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    gives_back(&*lab.worker("rack-1"), &local).await;
    lab.weather.clear();
    nothing_is_left_there(&lab).await;
    assert_it_ended_as_cancelled(&lab, &view).await;
}
