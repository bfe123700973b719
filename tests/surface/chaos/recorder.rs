//! Writes down every call with its times, for all clients of a run.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::history::{Answer, At, Call, Entry, Hold, Lease, SLACK};

/// The history of a run as it grows, and its clock.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    began_wall: Timestamp,
    entries: Mutex<Vec<Entry>>,
}

impl Recorder {
    /// The run begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), began_wall: Timestamp::now(), entries: Mutex::new(Vec::new()) }
    }

    /// How long the run has lasted.
    pub fn now(&self) -> At {
        self.began.elapsed()
    }

    /// A time of day as a moment of the run. What was before it is its beginning.
    pub fn at(&self, time: Timestamp) -> At {
        At::try_from(time.duration_since(self.began_wall)).unwrap_or_default()
    }

    /// The same for a time in an answer.
    pub fn at_text(&self, time: &Value) -> At {
        let text = time.as_str().unwrap_or_else(|| panic!("{time} is no time"));
        self.at(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
    }

    pub fn record(&self, entry: Entry) {
        self.entries.lock().expect("no recorder has panicked").push(entry);
    }

    /// All so far, by the time of their answers.
    ///
    /// # Panics
    /// When the wall clock was set during the run: then the times in answers mean nothing.
    pub fn history(&self) -> Vec<Entry> {
        let drift = self.at(Timestamp::now()).abs_diff(self.now());
        assert!(drift < SLACK / 2, "the wall clock has moved by {drift:?} during the run");
        let mut entries = self.entries.lock().expect("no recorder has panicked").clone();
        entries.sort_by_key(|entry| entry.end);
        entries
    }

    /// What an answer of a node says to a call.
    pub fn understand(&self, body: &Value) -> Answer {
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
        let request = &body["request"];
        let error = [&body["error"], &request["error"]].into_iter().find(|error| error.is_object());
        if let Some(error) = error {
            let rebuilding = error["details"]["rebuilding"] == true;
            return Answer::Refused { code: text(&error["code"]), rebuilding };
        }
        let lease = [&body["lease"], &request["lease"]].into_iter().find(|lease| lease.is_object());
        if let Some(lease) = lease {
            let fence = lease["fence"].as_u64().unwrap_or_else(|| panic!("{body}"));
            return Answer::Leased(Lease {
                hold: Hold { resource: text(&lease["resourceId"]), fence },
                id: text(&lease["id"]),
                granted: self.at_text(&lease["grantedAt"]),
                ttl: Duration::from_millis(lease["ttlMs"].as_u64().unwrap_or_else(|| panic!("{body}"))),
                expires: self.at_text(&lease["expiresAt"]),
            });
        }
        if request["state"] == "waiting" {
            return Answer::Waiting { request: text(&request["id"]) };
        }
        if body["status"] == "pending" {
            return Answer::Standing;
        }
        if body["leaseId"].is_string() {
            return Answer::Released { next: body["admittedWaiter"].as_str().map(str::to_owned) };
        }
        let resource = &body["resource"];
        match (resource["fence"].as_u64(), resource["leases"].as_array()) {
            (Some(fence), Some(leases)) => Answer::Seen { fence, held: !leases.is_empty() },
            _ if body["left"].is_boolean() => Answer::Done,
            _ => panic!("an answer that says nothing: {body}"),
        }
    }

    /// Writes down a call that has just been answered.
    pub fn answered(&self, who: (u32, u64), door: &str, start: At, call: Call, answer: Answer) {
        let (client, attempt) = who;
        self.record(Entry { client, attempt, door: door.to_owned(), start, end: self.now(), call, answer });
    }
}
