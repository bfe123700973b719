//! A large fleet that loses its gateway: 300 workers come back spread over time, and 3 000 who wait have their places again.

use std::collections::BTreeMap;
use std::time::Duration;

use berth::model::{Ask, Caller, EventKind, Ticket};
use berth::service::ask::EventQuery;
use berth::service::views::{RequestState, RequestView};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::lab::{Lab, acquire, active, eventually, request};

const WORKERS: usize = 300;
const CLIENTS: usize = 3_000;
/// How long the gateway is away. Workers dial at their slowest pace by then.
const AWAY: Duration = Duration::from_secs(20);
/// Everybody is back, and has its place, this long after the gateway is.
const BACK: Duration = Duration::from_secs(10);
/// In which connections are counted.
const BUCKET_MS: i64 = 500;

fn file() -> String {
    let worker = |index: usize| {
        format!(
            "[[worker]]\nname = \"rack-{index}\"\n[[worker.resource]]\nid = \"board-{index}\"\n\
             labels = {{ platform = \"linux\" }}\n"
        )
    };
    let gateway = "[lab]\nname = \"cluster\"\n[gateway]\nname = \"gateway\"\napi = \"127.0.0.1:0\"\n\
                   link = \"127.0.0.1:0\"\nrebuild_wait = \"30s\"\n";
    gateway.to_owned() + &(0..WORKERS).map(worker).collect::<String>()
}

/// Asks for any board, with the ticket of a former place.
async fn wait(lab: &Lab, client: usize, ticket: Option<Ticket>) -> RequestView {
    let ask = Ask { ticket, ..request(&format!("client-{client}"), "platform=linux", None) };
    let waiting = lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(60)).await.unwrap();
    assert_eq!(waiting.state, RequestState::Waiting, "client {client}: {waiting:?}");
    waiting
}

/// When each worker has come since `since`.
async fn connected(lab: &Lab, since: Timestamp) -> BTreeMap<String, Timestamp> {
    let query = EventQuery { limit: 1_000, event: Some(EventKind::WorkerConnected), ..EventQuery::default() };
    let mut seen = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = lab.gateway().events(&Caller::admin(), &EventQuery { after, ..query.clone() }, Duration::ZERO).await;
        let page = page.unwrap();
        for event in page.events.iter().filter(|event| event.timestamp >= since) {
            seen.insert(event.payload["worker"].as_str().unwrap().to_owned(), event.timestamp);
        }
        if page.events.len() < 1_000 {
            return seen;
        }
        after = page.last_seq;
    }
}

#[tokio::test(start_paused = true)]
async fn three_hundred_workers_and_three_thousand_waiters_come_through_a_restart_of_the_gateway() {
    let mut lab = Lab::of(&file(), &[("BERTH_LEASE__MAX_PER_REQUESTER", "1")]).await;
    let held = (0..WORKERS).map(|index| {
        let ask = acquire(&format!("holder-{index}"), &format!("board-{index}"), Duration::from_secs(3_600));
        let gateway = lab.gateway();
        async move { active(gateway.acquire(&Caller::admin(), ask).await.unwrap()) }
    });
    assert_eq!(join_all(held).await.len(), WORKERS);
    let mut before = Vec::new();
    for client in 0..CLIENTS {
        before.push(wait(&lab, client, None).await);
    }
    assert!(before.iter().enumerate().all(|(index, waiting)| waiting.position == Some(index + 1)));

    lab.stop("gateway").await;
    tokio::time::sleep(AWAY).await;
    let began = lab.clock.now();
    lab.restart("gateway").await;
    // All at once, the last first: who asks first is not who stands first.
    let back = join_all((0..CLIENTS).rev().map(|client| wait(&lab, client, before[client].ticket.clone()))).await;
    lab.ready().await;
    let took = lab.clock.now().run.left(began.run);
    assert!(took <= BACK, "everybody is back after {took:?}");
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (client, waiting) in (0..CLIENTS).rev().zip(&back) {
        let now = lab.gateway().lease_request(&Caller::admin(), &waiting.id, Duration::ZERO).await.unwrap();
        order.push((now.position.expect("it waits"), client));
    }
    order.sort_unstable();
    assert!(order.iter().enumerate().all(|(index, place)| *place == (index + 1, index)), "every place is kept");
    assert_eq!(lab.leases().await.len(), WORKERS, "and every lease");

    // The log is written behind the answers.
    let times = eventually("every worker's coming is in the log", || async {
        let times = connected(&lab, began.wall).await;
        (times.len() == WORKERS).then_some(times)
    })
    .await;
    let (first, last) = (*times.values().min().unwrap(), *times.values().max().unwrap());
    let bucket = |at: Timestamp| at.duration_since(first).as_millis() as i64 / BUCKET_MS;
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    times.values().for_each(|at| *counts.entry(bucket(*at)).or_default() += 1);
    let mean = WORKERS as f64 / (bucket(last) + 1) as f64;
    let peak = *counts.values().max().unwrap() as f64;
    assert!(peak < 3.0 * mean, "peak {peak} to mean {mean:.1} in {BUCKET_MS} ms: {counts:?}");
}
