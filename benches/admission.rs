//! How long a hand-over takes: from the release of a resource to the answer of the waiter that is next, with ever more
//! waiters behind it.
//!
//! Three kinds of crowds, each of 10, 1 000 and 100 000: those who wait for the same resource by its name, those who wait
//! for it by the same selector, and those who wait by selectors that nothing free matches. A host is kept for each size
//! and they take turns, so that the noise of the machine falls on all alike; what counts is the ratio of the medians.
//!
//! `cargo bench --bench admission`, with a number behind `--` for another count of rounds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use berth::admission::Rules;
use berth::admission::ticket::TicketKey;
use berth::clock::Clock;
use berth::driver::{Drivers, Guard, Programs};
use berth::host::exec::ExecDoor;
use berth::host::{self, HostArguments};
use berth::model::{Caller, Labels, RequestId, ResourceSpec};
use berth::service::answers::Acquired;
use berth::service::ask::{AcquireBody, Headers, RequestBody};
use berth::service::views::RequestState;
use berth::service::{Coordinator, HostService};
use futures_util::future::join_all;

const SIZES: [usize; 3] = [10, 1_000, 100_000];
const ROUNDS: usize = 200;
const GOAL: f64 = 1.5;

/// What a crowd waits for.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    /// The resource that is handed over, by its name.
    Named,
    /// The same, by one selector.
    Selector,
    /// What is not free, by a hundred selectors; the one that is handed over has one named waiter.
    Elsewhere,
}

impl Crowd {
    const ALL: [(&str, Crowd); 3] =
        [("by name", Crowd::Named), ("by selector", Crowd::Selector), ("for something else", Crowd::Elsewhere)];
}

struct Bench {
    service: Arc<dyn Coordinator>,
    rules: Rules,
    crowd: Crowd,
    /// How many have ever joined.
    joined: usize,
    /// Who waits, in the order of joining.
    waiting: VecDeque<RequestId>,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn start(crowd: Crowd, size: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let resource = |id: &str, labels: Labels| ResourceSpec { labels, ..ResourceSpec::bare(id.parse().unwrap()) };
        let mut rules = Rules::default();
        rules.waiting.waiter_ttl = Duration::from_secs(24 * 3600);
        let arguments = HostArguments {
            name: "bench".parse().unwrap(),
            database: directory.path().join("berth.db"),
            hands: Arc::new(Drivers { programs: Arc::new(Programs::new(Guard::new("berth"))) }),
            resources: vec![
                resource("pixel", labels(&[("platform", "android")])),
                resource("board", labels(&[("platform", "linux"), ("rack", "7")])),
            ],
            gateway: None,
            rules: rules.clone(),
            tickets: TicketKey::new(&[0; 32]),
            clock: Clock::system(),
        };
        let host = host::start(arguments).await.expect("a host");
        let execs = ExecDoor { desk: host.desk.clone(), guard: Guard::new("berth") };
        let (name, clock) = ("bench".parse().unwrap(), Clock::system());
        let service = HostService::new(host.desk, host.events, host.tickets, name, clock, execs);
        let mut bench = Self {
            service: Arc::new(service),
            rules,
            crowd,
            joined: 0,
            waiting: VecDeque::new(),
            _directory: directory,
        };
        bench.acquire("pixel", "first").await;
        bench.acquire("board", "second").await;
        while bench.joined < size {
            bench.join((size - bench.joined).min(1_000)).await;
        }
        bench
    }

    async fn acquire(&self, resource: &str, requester: &str) {
        let body = AcquireBody { requester: Some(requester.parse().unwrap()), ..AcquireBody::default() };
        let caller = Caller::admin();
        let ask = body.into_ask(resource.parse().unwrap(), &caller, Headers::default(), &self.rules.lease).unwrap();
        let acquired = self.service.acquire(&caller, ask).await.expect("a free resource");
        assert!(matches!(acquired, Acquired::Active { .. }));
    }

    /// Lets `count` more wait in the crowd.
    async fn join(&mut self, count: usize) {
        let asks = (self.joined..self.joined + count).map(|index| match self.crowd {
            Crowd::Named => self.ask(index, Some("pixel"), None),
            Crowd::Selector => self.ask(index, None, Some("platform=android".to_owned())),
            Crowd::Elsewhere => self.ask(index, None, Some(format!("platform=linux,rack!={}", 100 + index % 100))),
        });
        let ids = join_all(asks).await;
        self.waiting.extend(ids);
        self.joined += count;
    }

    async fn ask(&self, index: usize, resource: Option<&str>, select: Option<String>) -> RequestId {
        let body = RequestBody {
            resource_id: resource.map(|id| id.parse().unwrap()),
            select: select.map(|text| text.parse().unwrap()),
            requester: Some(format!("w{index}").parse().unwrap()),
            ..RequestBody::default()
        };
        let caller = Caller::admin();
        let ask = body.into_ask(&caller, Headers::default(), &self.rules.lease).unwrap();
        let request = self.service.request(&caller, ask, Duration::from_secs(60)).await.expect("it may wait");
        assert_eq!(request.state, RequestState::Waiting);
        request.id
    }

    /// One hand-over, timed from the release to the answer of who is next; then the crowd is as large as before.
    async fn hand_over(&mut self) -> Duration {
        let caller = Caller::admin();
        let next = match self.crowd {
            Crowd::Elsewhere => {
                self.joined += 1;
                Some(self.ask(self.joined, Some("pixel"), None).await)
            }
            _ => None,
        };
        let next = match next {
            Some(next) => next,
            None => self.waiting.pop_front().expect("somebody waits"),
        };
        let held = self.service.leases(&caller).await.expect("leases");
        let held = held.iter().find(|lease| lease.resource_id.as_str() == "pixel").expect("it is held").id.clone();
        let service = Arc::clone(&self.service);
        let told = tokio::spawn(async move {
            let caller = Caller::admin();
            let request = service.lease_request(&caller, &next, Duration::from_secs(30)).await.expect("the request");
            assert_eq!(request.state, RequestState::Granted);
            Clock::system().now().run
        });
        // The watcher stands before the clock starts.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let released = Clock::system().now().run;
        self.service.release(&caller, &held, None).await.expect("it is held");
        let took = told.await.expect("the waiter").left(released);
        if self.crowd != Crowd::Elsewhere {
            self.join(1).await;
        }
        took
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    // Cargo hands `--bench` in.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        println!("hand-over, median of {rounds} rounds, from the release to the next waiter's answer");
        for (name, crowd) in Crowd::ALL {
            let mut benches = Vec::new();
            for size in SIZES {
                benches.push(Bench::start(crowd, size).await);
            }
            let mut times = vec![Vec::new(); SIZES.len()];
            for _ in 0..rounds {
                for (bench, times) in benches.iter_mut().zip(&mut times) {
                    times.push(bench.hand_over().await);
                }
            }
            let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
            for (size, median) in SIZES.iter().zip(&medians) {
                println!("  {size:>7} waiting {name:<18} {median:>10.1?}");
            }
            let ratio = medians[2].as_secs_f64() / medians[0].as_secs_f64();
            let verdict = if ratio < GOAL { "under" } else { "OVER" };
            println!("  ratio of the last to the first: {ratio:.2}, {verdict} the goal of {GOAL}");
        }
    });
}
