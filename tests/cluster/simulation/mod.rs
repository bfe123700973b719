//! Whatever befalls packets at whatever step of a conversation: nobody holds together with another, what was answered
//! holds, and once the network is healed everybody is served.

use std::collections::HashSet;
use std::time::Duration;

use berth::admission::LeaseRules;
use berth::clock::RunTime;
use berth::model::{Ask, Caller, Fence};
use berth::service::ask::{Headers, RequestBody};
use berth::service::views::{LeaseView, RequestState, RequestView};

use crate::lab::{GATEWAY, Lab, RACK_1};
use crate::weather::{Fault, Storm};

mod rebuild;
mod renews;
mod restart;
mod rooms;
mod steps;

/// Everybody is served within this of simulated time after the network is healed.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// How many packets pass before the fault begins: every one of a conversation in turn.
const STEPS: u64 = 20;
/// How often a test looks.
const LOOK: Duration = Duration::from_millis(50);
const FAULTS: [Fault; 4] = [Fault::Lose, Fault::Delay, Fault::Double, Fault::Reorder];

/// A request for the resource by its name.
fn by_name(requester: &str) -> Ask {
    let body = RequestBody {
        requester: Some(requester.parse().unwrap()),
        resource_id: Some("pixel".parse().unwrap()),
        ..RequestBody::default()
    };
    body.into_ask(&Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

/// Who holds the resource, as its worker says.
async fn held(lab: &Lab) -> Vec<LeaseView> {
    let leases = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert!(leases.len() <= 1, "two hold the same: {leases:?}");
    leases
}

async fn now(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, Duration::ZERO).await.unwrap()
}

/// Which packets are befallen: of the gateway, of the worker, of both. A worker that starts meanwhile counts as it.
#[derive(Debug, Clone, Copy)]
enum Side {
    Gateway,
    Worker,
    Both,
}

impl Side {
    const ALL: [Side; 3] = [Side::Gateway, Side::Worker, Side::Both];

    /// The fault in this direction in a lab whose worker has this port.
    fn storm(self, lab: &Lab, rack: u16, fault: Fault, after: u64, seed: u64) -> Storm {
        let gateway = lab.weather.opened(GATEWAY);
        let (from, newcomers) = match self {
            Side::Gateway => (vec![gateway], false),
            Side::Worker => (vec![rack], true),
            Side::Both => (vec![gateway, rack], true),
        };
        Storm { fault, from, newcomers, after, seed }
    }
}

/// The seeds of the rounds that are run.
fn rounds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let (seed, rounds) = (number("BERTH_TEST_SEED").unwrap_or(1), number("BERTH_TEST_ROUNDS").unwrap_or(1));
    seed..seed + rounds
}

/// The fault from each `every`th packet on, in each direction: the storms, what is said when one fails, and how long
/// each lasts: once shorter than the link is missed, once longer.
fn storms(lab: &Lab, fault: Fault, every: usize) -> Vec<(Storm, Duration)> {
    let rack = lab.weather.opened(RACK_1);
    let mut storms = Vec::new();
    for round in rounds() {
        eprintln!("{fault:?}: run again with BERTH_TEST_SEED={round}");
        for (index, after) in (0..STEPS).step_by(every).enumerate() {
            for from in Side::ALL {
                let lasts = Duration::from_secs(if index % 2 == 0 { 3 } else { 8 });
                storms.push((from.storm(lab, rack, fault, after, (round << 8 | after) + 1), lasts));
            }
        }
    }
    storms
}

/// Requests that have not been served yet. Each gives back what it is granted.
struct Open {
    requests: Vec<RequestView>,
    /// The fences of those that were told to end.
    released: HashSet<Fence>,
    /// Those that were granted, in their order.
    served: Vec<String>,
}

impl Open {
    fn new(requests: Vec<RequestView>) -> Self {
        Self { requests, released: HashSet::new(), served: Vec::new() }
    }

    /// Looks at each once. A grant must hold at the worker until its release was sent; one whose release was not
    /// answered is released again the next time.
    async fn look(&mut self, lab: &Lab, said: &str) {
        for request in std::mem::take(&mut self.requests) {
            let seen = now(lab, &request).await;
            match seen.state {
                RequestState::Waiting => self.requests.push(request),
                RequestState::Granted => {
                    let lease = seen.lease.unwrap();
                    if !held(lab).await.iter().any(|kept| kept.fence == lease.fence) {
                        // Only a release that was sent can have ended it.
                        let sent = self.released.contains(&lease.fence);
                        assert!(sent, "what was answered does not hold: {lease:?}; {said}");
                        continue;
                    }
                    if self.released.insert(lease.fence) {
                        self.served.push(lease.holder_id.to_string());
                    }
                    if lab.gateway().release(&Caller::admin(), &lease.id, None).await.is_err() {
                        self.requests.push(request);
                    }
                }
                other => panic!("{other:?}: {seen:?}; {said}"),
            }
        }
    }

    /// The network is healed: all are served and gone within the bound, and the gateway knows it.
    async fn finish(&mut self, lab: &Lab, healed: RunTime, said: &str) {
        let within = |what: &str| assert!(lab.clock.now().run.left(healed) < SERVED_WITHIN, "{what}; {said}");
        while !self.requests.is_empty() {
            within(&format!("not served: {:?}", self.requests));
            self.look(lab, said).await;
            tokio::time::sleep(LOOK).await;
        }
        nothing_is_left(lab, healed, said).await;
    }
}

/// No lease is left at the worker, and the gateway has been told within the bound.
async fn nothing_is_left(lab: &Lab, healed: RunTime, said: &str) {
    // A release whose answer was lost is known once its worker has reported.
    while !lab.leases().await.is_empty() {
        assert!(lab.clock.now().run.left(healed) < SERVED_WITHIN, "not reported: {said}");
        tokio::time::sleep(LOOK).await;
    }
    assert!(held(lab).await.is_empty(), "{said}");
}
