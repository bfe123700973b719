//! What the clients of a run do: each takes lease after lease, in every way there is, and is sometimes rude about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::dice::Dice;
use super::door::{Door, Lost};
use super::history::{Answer, Ask, At, Call, Hold, Lease, Wait};
use super::recorder::Recorder;

/// A client asks on for so long when it gets no answer; then it goes away.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a node has for an answer; a node that is stopped takes longer.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
/// The longest poll, in seconds.
const POLL: u64 = 2;

/// One client.
pub struct Client {
    pub number: u32,
    pub door: Door,
    /// What it asks for by name.
    pub resources: Arc<[String]>,
    pub recorder: Arc<Recorder>,
    pub dice: Dice,
    /// True when the faults are over, and each client is to be served once more.
    pub stop: Arc<AtomicBool>,
    attempts: u64,
    /// Grows when it goes away from something unsettled and comes back as somebody else.
    life: u32,
}

/// One try for a lease, and all that is done with it.
struct Attempt {
    number: u64,
    ask: Ask,
    path: String,
    body: Value,
    /// The lease was granted after this, if there is one: the start of the latest call that was answered without it, and
    /// of the first one before that.
    since: Option<At>,
}

impl Client {
    pub fn new(number: u32, door: Door, resources: Arc<[String]>, recorder: Arc<Recorder>, seed: u64) -> Self {
        let dice = Dice::new(seed, u64::from(number) + 1);
        Self { number, door, resources, recorder, dice, stop: Arc::default(), attempts: 0, life: 0 }
    }

    /// Works until it is told to stop, and is then served once more; when it had given that lease back.
    pub async fn run(mut self) -> At {
        while !self.stop.load(Ordering::SeqCst) {
            self.round().await;
            sleep(self.dice.ms(5..250)).await;
        }
        self.life += 1;
        loop {
            let wait_by_name = self.dice.percent(50);
            let mut attempt = self.attempt(Wait::Attended, wait_by_name, true, 2000);
            if let Some(lease) = self.obtain(&mut attempt).await {
                self.give_back(&mut attempt, &lease).await;
                return self.recorder.now();
            }
            sleep(self.dice.ms(50..300)).await;
        }
    }

    /// One lease, or the try for one.
    async fn round(&mut self) {
        let wait = *self.dice.one(&[Wait::No, Wait::No, Wait::Room, Wait::Attended, Wait::Attended, Wait::Attended]);
        let by_name = wait == Wait::Room || self.dice.percent(50);
        // Whoever waits comes back for its place, and for that it has a key.
        let keyed = wait == Wait::Attended || self.dice.percent(60);
        let ttl = if self.dice.percent(10) { 20_000 } else { self.dice.number(2000..5000) };
        let mut attempt = self.attempt(wait, by_name, keyed, ttl);
        if let Some(lease) = self.obtain(&mut attempt).await {
            self.use_up(&mut attempt, &lease).await;
        }
        if &*self.door.node != "gateway" {
            self.look().await;
        }
    }

    fn attempt(&mut self, wait: Wait, by_name: bool, keyed: bool, ttl: u64) -> Attempt {
        self.attempts += 1;
        let sub = format!("c{}-{}", self.number, self.life);
        let name = format!("c{}-{}", self.number, self.attempts);
        let resource = by_name.then(|| self.dice.one(&self.resources).clone());
        let priority = if self.dice.percent(15) { 5 } else { 0 };
        let mut body = json!({ "requester": sub, "ttlMs": ttl, "priority": priority });
        if keyed {
            body["idempotencyKey"] = json!(name);
        }
        if self.dice.percent(40) {
            body["leaseId"] = json!(name);
        }
        let mut path = "/v1/lease-requests".to_owned();
        match (&resource, wait) {
            // By name, one that does not wait knocks at either door.
            (Some(resource), Wait::No | Wait::Room) if wait == Wait::Room || self.dice.percent(80) => {
                path = format!("/v1/resources/{resource}/leases");
                if wait == Wait::Room {
                    body["onConflict"] = json!("join-waiting-room");
                }
            }
            (Some(resource), _) => body["resourceId"] = json!(resource),
            (None, _) => body["select"] = json!(self.dice.one(&["pool=all", "pool=all,kind!=spare"])),
        }
        match wait {
            Wait::No if path == "/v1/lease-requests" => body["noWait"] = json!(true),
            Wait::Attended if self.dice.percent(20) && !self.stop.load(Ordering::SeqCst) => {
                body["timeoutMs"] = json!(self.dice.number(1000..6000));
            }
            _ => {}
        }
        let key = keyed.then_some(name);
        let ask = Ask { requester: format!("admin/{sub}"), key, resource, wait, priority };
        Attempt { number: self.attempts, ask, path, body, since: None }
    }

    /// Asks until there is a lease, or a no, or it goes away.
    async fn obtain(&mut self, attempt: &mut Attempt) -> Option<Lease> {
        let begun = Instant::now();
        let mut body = attempt.body.clone();
        while begun.elapsed() < PATIENCE {
            let (mut answer, mut ticket) = self.ask(attempt, &body).await;
            let mut unheard = 0;
            while let Answer::Waiting { request } = &answer {
                if self.dice.percent(2) && !self.stop.load(Ordering::SeqCst) {
                    // Nobody asks about it any more.
                    self.life += 1;
                    return None;
                }
                let (next, newer) = self.poll(attempt, request).await;
                ticket = newer.or(ticket);
                match next {
                    // The node may be back in a moment, and know it still.
                    Answer::Unknown if unheard < 2 => unheard += 1,
                    next => (answer, unheard) = (next, 0),
                }
                if unheard > 0 {
                    sleep(self.dice.ms(50..500)).await;
                }
            }
            match answer {
                Answer::Leased(lease) => return Some(lease),
                Answer::Standing if begun.elapsed() < Duration::from_secs(8) || self.dice.percent(90) => {}
                Answer::Standing => {
                    if self.leave(attempt).await != Answer::Done {
                        self.life += 1;
                    }
                    return None;
                }
                Answer::Refused { code, .. } if comes_back(&code) => {}
                Answer::Refused { code, .. } if code == "INTERNAL" => {}
                // Its place in the room, if it has one, stays there; whoever it is then begins at the end.
                Answer::Refused { .. } if attempt.ask.wait == Wait::Room => break,
                Answer::Refused { .. } => return None,
                Answer::Unknown if attempt.ask.key.is_some() => {}
                // It may have a lease, and will never know.
                _ => break,
            }
            if let Some(ticket) = ticket {
                body["ticket"] = json!(ticket);
            }
            sleep(self.dice.ms(50..400)).await;
        }
        self.life += 1;
        None
    }

    /// Renews, gives back, forgets, comes too late, asks twice.
    async fn use_up(&mut self, attempt: &mut Attempt, lease: &Lease) {
        if attempt.ask.key.is_some() && self.dice.percent(20) {
            let body = attempt.body.clone();
            self.ask(attempt, &body).await;
        }
        for _ in 0..self.dice.number(0..5) {
            sleep(self.dice.ms(10..600)).await;
            if self.renew(attempt, lease).await.is_gone() {
                return;
            }
        }
        match self.dice.number(0..100) {
            0..75 => {
                self.give_back(attempt, lease).await;
                if self.dice.percent(15) {
                    self.renew(attempt, lease).await;
                }
            }
            75..85 => {
                // It comes back about when the lease ends.
                let left = lease.expires.saturating_sub(self.recorder.now()).min(Duration::from_secs(6));
                sleep(left + self.dice.ms(0..400)).await;
                self.renew(attempt, lease).await;
                self.give_back(attempt, lease).await;
            }
            _ => self.life += 1,
        }
        if attempt.ask.key.is_some() && self.dice.percent(10) {
            let body = attempt.body.clone();
            self.ask(attempt, &body).await;
        }
    }

    async fn give_back(&mut self, attempt: &mut Attempt, lease: &Lease) {
        let path = format!("/v1/leases/{}?fence={}", lease.id, lease.hold.fence);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let call = Call::Release(lease.hold.clone());
            let (answer, _) = self.call(attempt, call, Method::DELETE, &path, None, ANSWER_BOUND).await;
            if !answer.is_unsure() && !matches!(answer, Answer::Refused { rebuilding: true, .. }) {
                return;
            }
            sleep(self.dice.ms(50..400)).await;
        }
        self.life += 1;
    }

    async fn ask(&mut self, attempt: &mut Attempt, body: &Value) -> (Answer, Option<String>) {
        let call = Call::Ask(attempt.ask.clone());
        // A dispatch may be out for as long as a fault lasts.
        let bound = ANSWER_BOUND * 3;
        let path = attempt.path.clone();
        self.call(attempt, call, Method::POST, &path, Some(body), bound).await
    }

    async fn poll(&mut self, attempt: &mut Attempt, request: &str) -> (Answer, Option<String>) {
        let path = format!("/v1/lease-requests/{request}?wait={POLL}");
        let bound = ANSWER_BOUND + Duration::from_secs(POLL);
        self.call(attempt, Call::Poll(attempt.ask.clone()), Method::GET, &path, None, bound).await
    }

    async fn renew(&mut self, attempt: &mut Attempt, lease: &Lease) -> Answer {
        let (path, body) = (format!("/v1/leases/{}/renew", lease.id), json!({ "fence": lease.hold.fence }));
        let call = Call::Renew(Hold { ..lease.hold.clone() });
        self.call(attempt, call, Method::POST, &path, Some(&body), ANSWER_BOUND).await.0
    }

    async fn leave(&mut self, attempt: &mut Attempt) -> Answer {
        let requester = attempt.ask.requester.clone();
        let resource = attempt.ask.resource.clone().expect("one stands in the room of a resource");
        let path = format!("/v1/resources/{resource}/waiting-room/me");
        let call = Call::Leave { requester, resource };
        self.call(attempt, call, Method::DELETE, &path, None, ANSWER_BOUND).await.0
    }

    async fn look(&mut self) {
        let mut attempt = self.attempt(Wait::No, true, false, 0);
        let resource = attempt.ask.resource.clone().expect("it is by name");
        let path = format!("/v1/resources/{resource}");
        self.call(&mut attempt, Call::Look { resource }, Method::GET, &path, None, ANSWER_BOUND).await;
    }

    /// One call, written down; the ticket of one that waits.
    async fn call(
        &mut self,
        attempt: &mut Attempt,
        call: Call,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> (Answer, Option<String>) {
        let start = self.recorder.now();
        let requester = attempt.ask.requester.strip_prefix("admin/");
        let told = self.door.call(method, path, requester, body, bound).await;
        let mut answer = told.as_ref().map_or(Answer::Unknown, |body| self.recorder.understand(body));
        let since = match (&call, &answer) {
            (Call::Ask(_) | Call::Poll(_), Answer::Waiting { .. } | Answer::Standing) => attempt.since.insert(start),
            (Call::Ask(_) | Call::Poll(_), _) => attempt.since.get_or_insert(start),
            _ => &start,
        };
        if let Answer::Leased(lease) = &mut answer {
            // A client counts from when it sent (SPEC §1), whatever clock the node has.
            lease.expires = lease.expires.min(*since + lease.ttl);
        }
        // Numbers of attempts are each client's own.
        let number = u64::from(self.number) << 32 | attempt.number;
        // What nobody took has no effect.
        if told != Err(Lost::Unreached) {
            self.recorder.answered((self.number, number), &self.door.node, start, call, answer.clone());
        }
        let ticket = told.ok().and_then(|body| body["request"]["ticket"].as_str().map(str::to_owned));
        (answer, ticket)
    }
}

/// True for the end of a wait that is no outcome: the client asks again under its key, with its ticket.
fn comes_back(code: &str) -> bool {
    ["NODE_RESTARTED", "UNKNOWN_LEASE_REQUEST", "STOPPING"].contains(&code)
}
