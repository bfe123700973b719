//! Holds on a single host, as its users meet them (SPEC §6): one for a slot, a token that is shown once, and the database
//! as the last guard.

mod checks;
mod clients;
mod commit;
mod contested;
mod crossing;
mod keys;
mod kills;
mod losers;
mod monitor;
mod secret;
mod slot;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bookings::window;
use crate::http::{Answer, Call, Door};
use crate::waiting::{close, text};

/// Asks for a hold.
pub fn hold(door: &Door, resource: &str, body: &Value) -> Answer {
    door.post(&format!("/v1/resources/{resource}/holds"), body)
}

/// A slot that is held, and what its holder has been shown.
#[derive(Debug, Clone)]
pub struct Held {
    /// The hold as it was answered.
    pub hold: Value,
    /// Its token.
    pub token: String,
}

impl Held {
    /// From the answer.
    #[track_caller]
    pub fn told(told: &Answer) -> Self {
        let told = &told.body;
        let fields: Vec<&String> = told.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["hold", "token"], "{told}");
        Self { hold: told["hold"].clone(), token: text(&told["token"]) }
    }

    /// Where it is.
    pub fn path(&self) -> String {
        format!("/v1/holds/{}", text(&self.hold["id"]))
    }

    /// Turns it into a booking.
    pub fn confirm(&self, door: &Door) -> Answer {
        door.post(&format!("{}/confirm", self.path()), &json!({ "token": self.token }))
    }

    /// Gives it back.
    pub fn release(&self, door: &Door) -> Answer {
        let path = self.path();
        let call = Call { method: "DELETE", path: &path, ..Call::default() };
        door.send(&call.header("Berth-Hold-Token", &self.token))
    }

    /// As its holder or an admin sees it now.
    #[track_caller]
    pub fn shown(&self, door: &Door) -> Value {
        door.get(&self.path()).expect(200).body["hold"].take()
    }
}

/// Panics unless two answers show the same hold. Its end trembles with the two clocks that it is read by.
#[track_caller]
pub fn same(one: &Value, other: &Value) {
    let timeless = |hold: &Value| {
        let mut hold = hold.clone();
        hold["expiresAt"].take();
        hold
    };
    assert_eq!(timeless(one), timeless(other));
    assert!(close(&one["expiresAt"], &other["expiresAt"]), "{one} {other}");
}

/// Holds a slot.
#[track_caller]
pub fn held(door: &Door, resource: &str, starts_at: Timestamp, ms: i64) -> Held {
    Held::told(&hold(door, resource, &window(starts_at, ms)).expect(201))
}

/// The holds of a resource.
#[track_caller]
pub fn listed(door: &Door, resource: &str) -> Vec<Value> {
    let holds = door.get(&format!("/v1/resources/{resource}/holds")).expect(200).body["holds"].take();
    holds.as_array().expect("a list").clone()
}

/// How often something is tried that goes wrong only sometimes: so many times, or as often as the variable says.
pub fn rounds(count: usize) -> usize {
    let times = std::env::var("BERTH_TEST_ROUNDS").ok().and_then(|times| times.parse().ok());
    count * times.unwrap_or(1_usize)
}
