//! The event logs of the workers, which they write in the transactions of what they tell (SPEC §10).

use super::history::{At, Fact, Hold, Logged, Run};

/// The lines about each resource, in the order of the log.
pub fn by_resource(log: &[Logged]) -> Vec<Vec<&Logged>> {
    let mut all: std::collections::BTreeMap<&str, Vec<&Logged>> = std::collections::BTreeMap::new();
    for line in log {
        all.entry(&line.hold.resource).or_default().push(line);
    }
    all.into_values().collect()
}

impl Run {
    /// The worker that has the resource, by its log.
    pub fn owner(&self, resource: &str) -> Option<&str> {
        self.log.iter().find(|line| line.hold.resource == resource).map(|line| line.worker.as_str())
    }

    /// The latest moment that anything is known of.
    pub fn finished(&self) -> At {
        let called = self.history.iter().map(|entry| entry.end).max();
        let logged = self.log.iter().map(|line| line.at).max();
        called.max(logged).unwrap_or_default()
    }
}

/// What an event says about a lease; none when it is about something else.
pub fn fact(event: &serde_json::Value) -> Option<(Hold, Fact, String)> {
    let fact = match event["event"].as_str()? {
        "lease.granted" => Fact::Granted,
        "lease.released" => Fact::Released,
        "lease.expired" => Fact::Expired,
        _ => return None,
    };
    let payload = &event["payload"];
    let text = |key: &str| payload[key].as_str().unwrap_or_else(|| panic!("{event} lacks {key}")).to_owned();
    let fence = payload["fence"].as_u64().unwrap_or_else(|| panic!("{event} lacks its fence"));
    Some((Hold { resource: text("resourceId"), fence }, fact, text("requester")))
}
