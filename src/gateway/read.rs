//! What the front shows: nothing in here changes anything.

use super::front::FrontState;
use super::message::{FleetLease, FleetResource, FrontMessage, RebuildNow, WorkerNow};
use crate::admission::resource::Held;
use crate::model::{Code, NodeName, Refusal, ResourceAddress};

impl FrontState {
    pub(super) fn read(&mut self, message: FrontMessage) {
        // A reader that has gone needs no answer.
        match message {
            FrontMessage::OpenRequests(reply) => drop(reply.send(self.open_requests())),
            FrontMessage::Routed(reply) => {
                let _ = reply.send(self.table.iter().filter_map(|(id, _)| self.fleet_lease(id)).collect());
            }
            FrontMessage::AllLeases(reply) => drop(reply.send(self.all_leases())),
            FrontMessage::Lease(id, reply) => {
                let _ = reply.send(self.fleet_lease(&id).ok_or_else(|| self.unknown_lease(&id)));
            }
            FrontMessage::Resources(reply) => drop(reply.send(self.all_resources().collect())),
            FrontMessage::Resource(address, reply) => drop(reply.send(self.one_resource(&address))),
            FrontMessage::Presence(reply) => drop(reply.send(self.presence())),
            FrontMessage::Workers(reply) => drop(reply.send(self.all_workers())),
            FrontMessage::Rebuild(reply) => {
                let now = RebuildNow { done: self.rebuilt, unheard: self.unheard(), roster: self.workers.len() };
                let _ = reply.send(now);
            }
            FrontMessage::IsLinked(name, reply) => {
                let _ = reply.send(self.workers.get(&name).is_some_and(|worker| worker.link.is_some()));
            }
            FrontMessage::SessionOf(name, reply) => {
                let _ = reply.send(self.workers.get(&name).map(|worker| worker.session.clone()));
            }
            _ => unreachable!("every other message is handled where it is matched"),
        }
    }

    fn all_leases(&self) -> Vec<FleetLease> {
        let mut leases = Vec::new();
        for (name, worker) in &self.workers {
            for seen in worker.view.iter().flat_map(|view| view.resources().values()) {
                let show = |held: &Held| FleetLease {
                    id: self.table.name(name, &held.lease),
                    worker: name.clone(),
                    lease: held.lease.clone(),
                    deadline: held.deadline,
                    labels: seen.labels.clone(),
                    environment: seen.environment.clone(),
                };
                leases.extend(seen.held.iter().map(show));
            }
        }
        leases
    }

    fn all_resources(&self) -> impl Iterator<Item = FleetResource> {
        self.workers.iter().flat_map(|(name, worker)| {
            let reachable = worker.link.is_some();
            let resources = worker.view.iter().flat_map(|view| view.resources());
            let grantable = resources.filter(|(_, seen)| seen.grantable);
            grantable.map(move |(id, seen)| FleetResource {
                worker: name.clone(),
                id: id.clone(),
                seen: seen.clone(),
                reachable,
            })
        })
    }

    /// The workers that have a resource of this address.
    pub(super) fn owners(&self, address: &ResourceAddress) -> Vec<NodeName> {
        let asked = |name: &NodeName| address.worker.as_ref().is_none_or(|worker| worker == name);
        let has = |worker: &super::front::Worker| {
            worker.view.as_ref().and_then(|view| view.resources().get(&address.id)).is_some_and(|seen| seen.grantable)
        };
        let owners = self.workers.iter().filter(|(name, worker)| asked(name) && has(worker));
        owners.map(|(name, _)| name.clone()).collect()
    }

    fn one_resource(&self, address: &ResourceAddress) -> Result<FleetResource, Refusal> {
        match self.owners(address).as_slice() {
            [] => Err(self.unknown_resource(address)),
            [owner] => {
                let mut all = self.all_resources();
                let found = all.find(|resource| resource.worker == *owner && resource.id == address.id);
                found.ok_or_else(|| self.unknown_resource(address))
            }
            several => Err(ambiguous_resource(address, several)),
        }
    }

    pub(super) fn unknown_resource(&self, address: &ResourceAddress) -> Refusal {
        let unheard = self.unheard();
        let more = if unheard.is_empty() {
            "`berth resource list` shows what there is".to_owned()
        } else {
            not_reported(&unheard)
        };
        Refusal::new(Code::UnknownResource, format!("no resource {address}; {more}"))
            .with("resourceId", address.to_string())
    }

    fn all_workers(&self) -> Vec<WorkerNow> {
        let show = |(name, worker): (&NodeName, &super::front::Worker)| {
            let resources = || worker.view.iter().flat_map(|view| view.resources().values());
            WorkerNow {
                name: name.clone(),
                connected: worker.link.is_some(),
                known: worker.view.is_some(),
                incompatible: worker.incompatible,
                last_seen: worker.last_seen,
                hello: worker.hello.clone(),
                resources: resources().filter(|seen| seen.grantable).count(),
                leases: resources().map(|seen| seen.held.len()).sum(),
                drained: worker.drained,
                queue_length: resources().fold(0, |sum: usize, seen| sum.saturating_add(seen.queue_length)),
            }
        };
        self.workers.iter().map(show).collect()
    }
}

/// Who has not reported, in words.
pub(super) fn not_reported(unheard: &[NodeName]) -> String {
    let names: Vec<&str> = unheard.iter().map(NodeName::as_str).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    format!("{} {verb} not reported yet", names.join(", "))
}

/// `AMBIGUOUS_RESOURCE`, listing the addresses that are meant to choose from.
pub(super) fn ambiguous_resource(address: &ResourceAddress, owners: &[NodeName]) -> Refusal {
    let full: Vec<String> = owners.iter().map(|owner| format!("{owner}/{}", address.id)).collect();
    Refusal::new(
        Code::AmbiguousResource,
        format!("several workers have {}: name one of {}", address.id, full.join(", ")),
    )
    .with("resourceIds", full)
}
