//! What people can try after a refusal.

use std::time::Duration;

use super::args::{Command, ResourceCommand};
use super::booking_args::BookingCommand;
use super::connect::Connector;
use super::failure::refusal;
use super::hold_args::{HoldCommand, HoldsCommand};
use super::lease_args::LeaseCommand;
use super::span;
use crate::client::{Client, ClientError};
use crate::model::{Code, Refusal, ResourceAddress};
use crate::service::views::ResourceView;

/// What a command was about, as far as a hint needs it.
#[derive(Debug, Default)]
pub(super) struct Subject {
    resource: Option<ResourceAddress>,
    /// What shows whether it was done, when no answer says so.
    seen_with: Option<String>,
}

impl Subject {
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Lease(args) => {
                let granted = || Some("granted with `berth lease list`".to_owned());
                let (resource, seen_with) = match &args.command {
                    Some(LeaseCommand::Acquire(args)) => (Some(&args.resource), granted()),
                    Some(LeaseCommand::WaitingRoom { resource } | LeaseCommand::Leave { resource }) => {
                        (Some(resource), None)
                    }
                    Some(LeaseCommand::Bookings { command }) => of_bookings(command),
                    Some(LeaseCommand::Holds { command }) => of_holds(command),
                    Some(_) => (None, None),
                    None => (args.request.target.resource.as_ref(), granted()),
                };
                Self { resource: resource.cloned(), seen_with }
            }
            Command::Exec(args) => Self {
                resource: args.request.target.resource.clone(),
                seen_with: Some("granted with `berth lease list`".to_owned()),
            },
            Command::Holds { command: HoldsCommand::Pause { resource } | HoldsCommand::Resume { resource } } => {
                Self { resource: resource.clone(), seen_with: None }
            }
            Command::Resource {
                command:
                    ResourceCommand::Show { resource }
                    | ResourceCommand::Drain { resource }
                    | ResourceCommand::Undrain { resource }
                    | ResourceCommand::Clear { resource },
            } => Self { resource: Some(resource.clone()), seen_with: None },
            _ => Self::default(),
        }
    }
}

fn of_bookings(command: &BookingCommand) -> (Option<&ResourceAddress>, Option<String>) {
    match command {
        BookingCommand::Create(args) => {
            let resource = &args.resource;
            (Some(resource), Some(format!("booked with `berth lease bookings list {resource} --mine`")))
        }
        BookingCommand::List(args) => (args.resource.as_ref(), None),
        BookingCommand::Reschedule(args) => {
            (Some(&args.resource), Some(format!("moved with `berth lease bookings show {}`", args.booking)))
        }
        BookingCommand::Cancel { resource, .. } => (Some(resource), None),
        BookingCommand::Show { .. } => (None, None),
    }
}

fn of_holds(command: &HoldCommand) -> (Option<&ResourceAddress>, Option<String>) {
    match command {
        HoldCommand::Create(args) => {
            let resource = &args.resource;
            (Some(resource), Some(format!("held with `berth lease holds list {resource}`")))
        }
        HoldCommand::List { resource } => (Some(resource), None),
        _ => (None, None),
    }
}

/// What to try after `error`, where there is something.
pub(super) async fn after(error: &anyhow::Error, subject: &Subject, connector: &Connector) -> Option<String> {
    let unknown = matches!(error.downcast_ref(), Some(ClientError::Unanswered { reached: true, .. }));
    if let (Some(seen_with), true) = (&subject.seen_with, unknown) {
        return Some(format!("see whether it was {seen_with}"));
    }
    let refusal = refusal(error)?;
    match (refusal.code, &subject.resource) {
        (Code::UnknownResource, Some(asked)) => nearest(&connector.client().await.ok()?, asked).await,
        (Code::BookingConflict | Code::SlotHeld, Some(asked)) => {
            Some(format!("`berth lease bookings list {asked}` shows what is booked"))
        }
        (Code::ResourceBooked, _) => about_a_booking(refusal),
        (Code::HoldsPaused, _) => {
            Some("an admin hears why from the worker that has the resource: `berth --via LAB@WORKER doctor`".to_owned())
        }
        _ => about_holding(refusal),
    }
}

/// For how long it can be had, where it can at all.
fn about_a_booking(refusal: &Refusal) -> Option<String> {
    let ms = refusal.details.as_ref()?.get("availableForMs")?.as_u64().filter(|ms| *ms > 0)?;
    let free = span::short(Duration::from_millis(ms));
    Some(format!("it is free for {free}; ask for no more, or add --allow-shorter and take what there is"))
}

fn about_holding(refusal: &Refusal) -> Option<String> {
    let fact = |key| refusal.details.as_ref()?.get(key)?.as_str();
    let lease = match refusal.code {
        Code::LeaseIdTaken => fact("leaseId"),
        Code::RequesterAlreadyLeased => fact("existingLeaseId"),
        _ => return None,
    };
    Some(match (lease, fact("existingRequestId")) {
        (Some(lease), _) => {
            format!("`berth lease show {lease}` shows what is held, `berth lease release {lease}` frees it")
        }
        (None, Some(request)) => format!("`berth lease cancel {request}` ends the request that waits"),
        (None, None) => "`berth lease list` shows what is held, `berth lease release ID` frees it".to_owned(),
    })
}

async fn nearest(client: &Client, asked: &ResourceAddress) -> Option<String> {
    let known = client.resources(None).await.ok()?;
    match likeliest(&asked.to_string(), &known) {
        Some(name) => Some(format!("did you mean {name}?")),
        None => Some("`berth resource list` shows what there is".to_owned()),
    }
}

/// The resource whose name differs least from what was typed, if it is no more than a third.
fn likeliest(asked: &str, known: &[ResourceView]) -> Option<String> {
    let named = |resource: &ResourceView| match (&resource.worker, asked.contains('/')) {
        (Some(worker), true) => format!("{worker}/{}", resource.id),
        _ => resource.id.to_string(),
    };
    let bound = (asked.len() / 3).max(2);
    let near = known.iter().map(named).map(|name| (strsim::osa_distance(asked, &name), name));
    near.filter(|(distance, _)| *distance <= bound).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake;

    #[test]
    fn a_mistyped_resource_is_answered_with_the_nearest_one() {
        let known: Vec<ResourceView> = [("pixel-8-a", "rack-1"), ("pixel-8-b", "rack-1"), ("bench-1", "rack-2")]
            .into_iter()
            .map(|(id, worker)| serde_json::from_value(fake::resource(id, worker)).unwrap())
            .collect();
        for (asked, meant) in [
            ("pixel-8a", Some("pixel-8-a")),
            ("Pixel-8-b", Some("pixel-8-b")),
            ("rack-2/bensh-1", Some("rack-2/bench-1")),
            ("toaster", None),
        ] {
            assert_eq!(likeliest(asked, &known).as_deref(), meant, "{asked}");
        }
    }

    #[test]
    fn whoever_holds_too_much_hears_how_to_see_and_free_it() {
        let held = Refusal::new(Code::RequesterAlreadyLeased, "no").with("existingLeaseId", "mine");
        let hint = about_holding(&held).unwrap();
        assert!(hint.contains("`berth lease show mine`") && hint.contains("`berth lease release mine`"), "{hint}");
        let open = Refusal::new(Code::RequesterAlreadyLeased, "no").with("existingRequestId", "req_1");
        assert!(about_holding(&open).unwrap().contains("req_1"));
        assert!(about_holding(&Refusal::new(Code::LeaseIdTaken, "no")).unwrap().contains("berth lease list"));
        assert_eq!(about_holding(&Refusal::new(Code::NoCapacity, "no")), None);
    }
}
