//! What one resource does, in the fewest words.

use std::time::Duration;

use berth::admission::resource::Command;
use berth::clock::{Now, RunTime};
use berth::model::{Authority, Code, Door, Fence, LeaseId, Mode, Role};

/// What the model knows of one lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    pub id: LeaseId,
    pub holder: String,
    pub shared: bool,
    pub fence: Fence,
    pub ttl: Duration,
    pub deadline: RunTime,
}

/// What is true of the resource.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub leases: Vec<Lease>,
    pub fence: Fence,
}

/// What the model expects to be answered.
#[derive(Debug, PartialEq)]
pub enum Expected {
    Lease(Lease),
    Released(LeaseId),
    Refused(Code),
    Nothing,
}

impl Model {
    pub fn take(&mut self, max_shared: u32, command: &Command, now: Now) -> Expected {
        self.leases.retain(|lease| lease.deadline > now.run);
        match command {
            Command::Wake | Command::Rewrite => Expected::Nothing,
            Command::Acquire { lease, door } => {
                let shared = lease.mode == Mode::Shared;
                let seats = if shared && self.leases.iter().all(|lease| lease.shared) { max_shared } else { 1 };
                if self.leases.len() >= seats as usize {
                    return Expected::Refused(match door {
                        Door::Acquire => Code::ResourceUnavailable,
                        Door::Request => Code::NoCapacity,
                    });
                }
                let clock = u64::try_from(now.wall.as_millisecond()).unwrap();
                self.fence = Fence(clock.max(self.fence.0 + 1));
                let (id, holder) = (lease.id.clone(), lease.holder.to_string());
                let (ttl, deadline) = (lease.ttl, now.run + lease.ttl);
                self.leases.push(Lease { id, holder, shared, fence: self.fence, ttl, deadline });
                Expected::Lease(self.leases.last().unwrap().clone())
            }
            Command::Renew { lease, fence, ttl, authority } => match self.named(lease, *fence, authority) {
                Err(code) => Expected::Refused(code),
                Ok(index) => {
                    let lease = &mut self.leases[index];
                    lease.ttl = ttl.unwrap_or(lease.ttl);
                    lease.deadline = now.run + lease.ttl;
                    Expected::Lease(lease.clone())
                }
            },
            Command::Release { lease, fence, authority } => match self.named(lease, *fence, authority) {
                Err(code) => Expected::Refused(code),
                Ok(index) => Expected::Released(self.leases.remove(index).id),
            },
        }
    }

    fn named(&self, id: &LeaseId, fence: Option<Fence>, by: &Authority) -> Result<usize, Code> {
        let index = self.leases.iter().position(|lease| lease.id == *id).ok_or(Code::UnknownLease)?;
        let lease = &self.leases[index];
        let mine = match by {
            Authority::Client(caller) => match caller.role {
                Role::Viewer => false,
                Role::Agent => lease.holder.split('/').next() == Some(caller.principal.as_str()),
                Role::Admin => true,
            },
            Authority::Gateway(name) => lease.holder.starts_with(&format!("gw:{name}:")),
        };
        match (mine, fence.is_none_or(|fence| fence == lease.fence)) {
            (false, _) => Err(Code::InsufficientPermissions),
            (true, false) => Err(Code::UnknownLease),
            (true, true) => Ok(index),
        }
    }
}
