//! What another reading of the lab file says otherwise, apart from the resources.

use std::collections::BTreeMap;

use super::Value;
use crate::model::{NodeName, NodeRole};

/// The sections whose values count as soon as they are read.
const AT_ONCE: &[&str] = &["lease", "waiting_room", "bookings", "holds", "events", "limits", "exec"];

/// The keys of values that are others now, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// Those that count at once.
    pub rules: Vec<String>,
    /// Those that concern one of the nodes and count only after its restart.
    pub needs_restart: Vec<String>,
}

impl Differences {
    /// What `read` says otherwise than `in_force`, for these nodes of the lab.
    pub fn between(in_force: &[Value], read: &[Value], nodes: &[(NodeName, NodeRole)]) -> Self {
        let by_key = |values: &[Value]| -> BTreeMap<String, String> {
            let plain = values.iter().filter(|value| !is_of_resource(&value.key));
            plain.map(|value| (value.key.clone(), value.value.clone())).collect()
        };
        let (mut before, after) = (by_key(in_force), by_key(read));
        let mut changed: Vec<String> = Vec::new();
        for (key, value) in after {
            if before.remove(&key).as_ref() != Some(&value) {
                changed.push(key);
            }
        }
        changed.extend(before.into_keys());
        changed.sort();
        let (rules, others): (Vec<_>, Vec<_>) = changed.into_iter().partition(|key| counts_at_once(key));
        let needs_restart = others.into_iter().filter(|key| nodes.iter().any(|node| concerns(key, node))).collect();
        Self { rules, needs_restart }
    }

    /// The values that are in force once the rules of `read` are taken up.
    pub fn taken_up(in_force: Vec<Value>, read: Vec<Value>) -> Vec<Value> {
        let stays = in_force.into_iter().filter(|value| !counts_at_once(&value.key));
        stays.chain(read.into_iter().filter(|value| counts_at_once(&value.key))).collect()
    }
}

fn counts_at_once(key: &str) -> bool {
    key.split_once('.').is_some_and(|(section, _)| AT_ONCE.contains(&section))
}

fn is_of_resource(key: &str) -> bool {
    let of_worker = key.strip_prefix("worker.").and_then(|rest| rest.split_once('.'));
    of_worker.is_some_and(|(_, rest)| rest.starts_with("resource."))
}

/// True when a node goes by the value of `key`.
fn concerns(key: &str, (name, role): &(NodeName, NodeRole)) -> bool {
    let of_worker = key.strip_prefix("worker.").and_then(|rest| rest.split_once('.'));
    match (of_worker, role) {
        // Which workers there are is the gateway's too.
        (Some((worker, of)), role) => worker == name.as_str() || (*role == NodeRole::Gateway && of == "name"),
        (None, NodeRole::Worker) if key.starts_with("gateway.") => matches!(key, "gateway.name" | "gateway.address"),
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;

    fn values(list: &[(&str, &str)]) -> Vec<Value> {
        let value = |(key, value): &(&str, &str)| Value {
            key: key.to_string(),
            value: value.to_string(),
            origin: Origin::Default,
        };
        list.iter().map(value).collect()
    }

    fn node(name: &str, role: NodeRole) -> (NodeName, NodeRole) {
        (name.parse().unwrap(), role)
    }

    #[test]
    fn a_value_counts_at_once_or_after_a_restart_of_a_node_that_it_concerns() {
        let before = values(&[
            ("lab.name", "a"),
            ("gateway.name", "g"),
            ("gateway.api", "1"),
            ("lease.max_ttl", "4h"),
            ("lease.max_total", "9h"),
            ("exec.timeout", "10m"),
            ("worker.w1.name", "w1"),
            ("worker.w1.api", "1"),
            ("worker.w1.resource.a.max_shared", "1"),
        ]);
        let after = values(&[
            ("lab.name", "b"),
            ("gateway.name", "g"),
            ("gateway.api", "2"),
            ("lease.max_ttl", "5h"),
            ("exec.timeout", "10m"),
            ("exec.allow.adb", "[\"adb\"]"),
            ("worker.w1.name", "w1"),
            ("worker.w1.api", "2"),
            ("worker.w1.resource.a.max_shared", "2"),
            ("worker.w2.name", "w2"),
        ]);
        let of = |nodes: &[(NodeName, NodeRole)]| Differences::between(&before, &after, nodes);
        let all = of(&[node("g", NodeRole::Gateway), node("w1", NodeRole::Worker)]);
        assert_eq!(all.rules, ["exec.allow.adb", "lease.max_total", "lease.max_ttl"]);
        assert_eq!(all.needs_restart, ["gateway.api", "lab.name", "worker.w1.api", "worker.w2.name"]);
        let gateway = of(&[node("g", NodeRole::Gateway)]);
        assert_eq!(gateway.needs_restart, ["gateway.api", "lab.name", "worker.w2.name"]);
        let worker = of(&[node("w1", NodeRole::Worker)]);
        assert_eq!(worker.needs_restart, ["lab.name", "worker.w1.api"]);
        assert_eq!(of(&[node("w2", NodeRole::Worker)]).needs_restart, ["lab.name", "worker.w2.name"]);
        assert_eq!(Differences::between(&after, &after, &[node("g", NodeRole::Gateway)]), Differences::default());
    }

    #[test]
    fn what_needs_a_restart_is_named_again_and_what_counts_is_not() {
        let before = values(&[("lab.name", "a"), ("lease.max_ttl", "4h"), ("lease.max_total", "9h")]);
        let after = values(&[("lab.name", "b"), ("lease.max_ttl", "5h")]);
        let taken_up = Differences::taken_up(before, after.clone());
        let again = Differences::between(&taken_up, &after, &[node("g", NodeRole::Gateway)]);
        assert_eq!((again.rules.len(), again.needs_restart), (0, vec!["lab.name".to_owned()]));
    }
}
