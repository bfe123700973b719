//! A gateway that is killed again and again while leases are taken, renewed and released.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Answer, Call, Door};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

const RESTARTS: usize = 50;
/// More than there are resources, so that refusals are part of the load.
const REQUESTERS: usize = 6;
/// How often a lease is renewed before it is released, so that most restarts happen in the middle of one.
const RENEWS: usize = 3;
/// What a requester asks for is settled within this, however often the gateway dies meanwhile.
const STUCK: Duration = Duration::from_secs(30);

const LAB: &str = r#"
[lab]
name = "test"
[gateway]
api = "127.0.0.1:<gateway>"
link = "127.0.0.1:<link>"
[waiting_room]
return_grace = "1s"

[[worker]]
name = "rack-1"
[[worker.resource]]
id = "pixel-{n}"
count = 2
labels = { pool = "all" }
[[worker]]
name = "rack-2"
[[worker.resource]]
id = "bench-{n}"
count = 2
labels = { pool = "all" }
"#;

/// A lease as its requester was told of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Lease {
    id: String,
    resource: String,
    fence: u64,
}

impl Lease {
    fn told(lease: &Value) -> Self {
        let text = |key: &str| lease[key].as_str().unwrap_or_else(|| panic!("{lease}")).to_owned();
        Self { id: text("id"), resource: text("resourceId"), fence: lease["fence"].as_u64().unwrap() }
    }
}

/// What all of them know.
#[derive(Default)]
struct Oracle {
    stop: AtomicBool,
    /// Leases that are kept to the end, so that there is something to compare.
    kept: AtomicUsize,
    rounds: AtomicUsize,
    /// Who may use what at this moment, and the fence of the latest grant.
    holders: Mutex<HashMap<String, (u64, Option<usize>)>>,
}

impl Oracle {
    /// True when who has no lease need not go on.
    fn is_enough(&self) -> bool {
        self.stop.load(Ordering::SeqCst) && self.kept.load(Ordering::SeqCst) > 0
    }

    fn granted(&self, who: usize, lease: &Lease) {
        let mut holders = self.holders.lock().unwrap();
        let (fence, holder) = holders.entry(lease.resource.clone()).or_default();
        assert_eq!(*holder, None, "{who} was told that it holds {lease:?}");
        assert!(lease.fence > *fence, "the fence of {lease:?} is not above {fence}");
        (*fence, *holder) = (lease.fence, Some(who));
    }

    fn given_back(&self, lease: &Lease) {
        self.holders.lock().unwrap().get_mut(&lease.resource).unwrap().1 = None;
    }
}

/// Tells the requesters to stop when the test ends, also when it fails: it waits for all of them.
struct StopAtEnd<'a>(&'a Oracle);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}

/// One client that leases, renews and releases; each of its questions is asked until it has an answer.
struct Requester<'a> {
    number: usize,
    door: Door,
    oracle: &'a Oracle,
}

impl Requester<'_> {
    /// Works until it is told to stop; answers the lease that it then holds.
    fn run(&self) -> Option<Lease> {
        for round in 0.. {
            let lease = self.lease(round)?;
            self.oracle.granted(self.number, &lease);
            for _ in 0..RENEWS {
                self.renew(&lease);
            }
            if self.oracle.stop.load(Ordering::SeqCst) {
                self.oracle.kept.fetch_add(1, Ordering::SeqCst);
                return Some(lease);
            }
            self.oracle.given_back(&lease);
            self.release(&lease);
            self.oracle.rounds.fetch_add(1, Ordering::SeqCst);
        }
        unreachable!("the rounds have no end")
    }

    /// Asks under one key until there is a lease; none when it was told to stop and somebody else keeps one.
    fn lease(&self, round: usize) -> Option<Lease> {
        let mut body = json!({ "requester": format!("r{}", self.number), "ttlMs": 600_000 });
        let key = format!("r{}-{round}", self.number);
        // Every other one by name, through the other door.
        let path = if self.number.is_multiple_of(2) {
            body["select"] = json!("pool=all");
            "/v1/lease-requests".to_owned()
        } else {
            format!("/v1/resources/{}-{}/leases", ["pixel", "bench"][self.number / 2 % 2], 1 + round % 2)
        };
        self.until("a lease", || {
            match self.door.try_send(&Call::json(&path, &body.to_string()).header("Idempotency-Key", &key)) {
                Err(_) => None,
                Ok(told) if told.status == 201 => {
                    let lease = if told.body["lease"].is_object() {
                        &told.body["lease"]
                    } else {
                        &told.body["request"]["lease"]
                    };
                    // The place in line, for the next gateway.
                    if told.body["request"]["ticket"].is_string() {
                        body["ticket"] = told.body["request"]["ticket"].clone();
                    }
                    if lease.is_object() {
                        return Some(Some(Lease::told(lease)));
                    }
                    // One that still waits is asked about under its key, until everybody stops.
                    let enough = self.oracle.is_enough();
                    (enough && self.cancel(&told.body["request"]["id"])).then_some(None)
                }
                Ok(told) => {
                    let held = matches!(told.code(), "NO_CAPACITY" | "RESOURCE_UNAVAILABLE");
                    assert!(held || told.code() == "WORKER_UNREACHABLE", "{}", told.body);
                    (held && self.oracle.is_enough()).then_some(None)
                }
            }
        })
    }

    /// Takes a request back that waits; false when it has got its lease, or nobody knows.
    fn cancel(&self, id: &Value) -> bool {
        let path = format!("/v1/lease-requests/{}", id.as_str().expect("a request has an id"));
        let call = Call { method: "DELETE", path: &path, ..Call::default() };
        self.door.try_send(&call).is_ok_and(|told| told.status == 204)
    }

    fn renew(&self, lease: &Lease) {
        let path = format!("/v1/leases/{}/renew", lease.id);
        let body = json!({ "fence": lease.fence }).to_string();
        let told = self.until("a renew", || self.answer(&Call::json(&path, &body)));
        assert_eq!(told.status, 200, "{} of {} lost {lease:?}: {}", self.number, REQUESTERS, told.body);
        assert_eq!(&Lease::told(&told.body["lease"]), lease);
    }

    fn release(&self, lease: &Lease) {
        let path = format!("/v1/leases/{}?fence={}", lease.id, lease.fence);
        let call = Call { method: "DELETE", path: &path, ..Call::default() };
        let mut asked = 0;
        let told = self.until("a release", || {
            asked += 1;
            self.answer(&call)
        });
        // When an earlier answer was lost, the lease may be gone already.
        let gone = asked > 1 && told.code() == "UNKNOWN_LEASE";
        assert!(told.status == 200 || gone, "{lease:?}: {}", told.body);
    }

    /// The answer, unless there is none yet.
    fn answer(&self, call: &Call<'_>) -> Option<Answer> {
        let told = self.door.try_send(call).ok()?;
        let later = told.code() == "WORKER_UNREACHABLE" || told.details()["rebuilding"] == true;
        (!later).then_some(told)
    }

    fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(begun.elapsed() < STUCK, "requester {} is stuck: no {what} for {STUCK:?}", self.number);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn fifty_gateway_restarts_under_load_lose_no_lease_and_leave_nobody_stuck() {
    let mut lab = Lab::apart(LAB, &["gateway", "rack-1", "rack-2"]);
    let door = lab.door("gateway");
    let oracle = Oracle::default();
    let held: BTreeSet<Lease> = thread::scope(|scope| {
        let requesters: Vec<_> = (0..REQUESTERS)
            .map(|number| Requester { number, door: door.clone(), oracle: &oracle })
            .map(|requester| scope.spawn(move || requester.run()))
            .collect();
        let stop = StopAtEnd(&oracle);
        // A requester that fails ends the test: nothing is to be waited for in vain.
        let alive = || assert!(requesters.iter().all(|it| !it.is_finished()), "a requester has failed");
        for restart in 0..RESTARTS {
            lab.kill_9("gateway");
            lab.start("gateway");
            lab.wait_listening("gateway");
            // Some gateways die before their workers are back.
            if restart % 5 == 4 {
                continue;
            }
            let before = oracle.rounds.load(Ordering::SeqCst);
            eventually("leases come and go again", BOUND, || {
                alive();
                (oracle.rounds.load(Ordering::SeqCst) >= before + REQUESTERS).then_some(())
            });
        }
        drop(stop);
        requesters.into_iter().filter_map(|it| it.join().expect("a requester has failed")).collect()
    });
    let listed = |door: &Door, prefix: &str| -> BTreeSet<Lease> {
        let leases = door.get("/v1/leases").expect(200).body["leases"].take();
        let prefixed = |lease: &Value| {
            let lease = Lease::told(lease);
            Lease { id: format!("{prefix}{}", lease.id), ..lease }
        };
        leases.as_array().unwrap().iter().map(prefixed).collect()
    };
    assert_eq!(listed(&door, ""), held, "the gateway shows what was told, and nothing else");
    let mut truth = listed(&lab.socket("rack-1"), "rack-1.");
    truth.extend(listed(&lab.socket("rack-2"), "rack-2."));
    assert_eq!(truth, held, "and so do the workers");
    let resources: BTreeSet<&String> = held.iter().map(|lease| &lease.resource).collect();
    assert_eq!(resources.len(), held.len());
    assert!(!held.is_empty());
}
