//! `berth lease bookings`.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::booking_args::{BookingCommand, ListBookings};
use super::lease::until;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::model::{BookingId, Code, Refusal, ResourceAddress};
use crate::service::calendar::ask::BookingQuery;
use crate::service::calendar::views::{Booked, BookingView, Bookings, OneBooking};

pub(super) async fn run(command: BookingCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    match command {
        BookingCommand::Create(args) => {
            let booked = client.book(&args.resource, &args.body()).await?;
            if let Booked::Series { series_id, bookings } = &booked {
                output.talk(&format!("{series_id} of {} bookings", bookings.len()));
            }
            output.answer(&booked, || match &booked {
                Booked::One { booking } => said("booked", booking),
                Booked::Series { bookings, .. } => bookings.iter().map(|booking| said("booked", booking)).collect(),
            })
        }
        BookingCommand::List(args) => {
            let all = every(&args, client).await?;
            if all.bookings.is_empty() {
                output.talk("no bookings");
            }
            for worker in &all.unreachable {
                output.talk(&format!("not shown: the bookings of {worker}, which is not connected"));
            }
            output.answer(&all, || listed(&all.bookings))
        }
        BookingCommand::Show { booking } => {
            let booking = client.booking(&booking).await?;
            let human = sheet(&booking);
            output.answer(&OneBooking { booking }, || human)
        }
        BookingCommand::Cancel { resource, booking, following } => {
            expect_on(&resource, &booking, client).await?;
            let cancelled = client.cancel_booking(&booking, following).await?;
            output.answer(&cancelled, || {
                let all = std::iter::once(&cancelled.booking).chain(cancelled.following.iter().flatten());
                all.map(|booking| said("cancelled", booking)).collect()
            })
        }
        BookingCommand::Reschedule(args) => {
            expect_on(&args.resource, &args.booking, client).await?;
            let booking = client.reschedule(&args.booking, &args.body()).await?;
            let human = said("rescheduled", &booking);
            output.answer(&OneBooking { booking }, || human)
        }
    }
}

/// All pages of a list, as one.
async fn every(args: &ListBookings, client: &Client) -> anyhow::Result<Bookings> {
    let mut query = args.query();
    let (mut bookings, mut unreachable) = (Vec::new(), BTreeSet::new());
    loop {
        let page = client.bookings(args.resource.as_ref(), &query).await?;
        let none = page.bookings.is_empty();
        bookings.extend(page.bookings);
        unreachable.extend(page.unreachable);
        match page.next {
            // A page that leads nowhere, or back, ends the list, whatever it says.
            Some(next) if !none && query.after.as_ref().is_none_or(|after| next > *after) => {
                query = BookingQuery { after: Some(next), ..query };
            }
            _ => return Ok(Bookings { bookings, next: None, unreachable: unreachable.into_iter().collect() }),
        }
    }
}

/// The command names the resource beside the booking, so that a wrong id does not hit a booking elsewhere.
///
/// # Errors
/// The booking is unknown, or on another resource.
async fn expect_on(resource: &ResourceAddress, id: &BookingId, client: &Client) -> anyhow::Result<()> {
    let booking = client.booking(id).await?;
    let elsewhere = match (&resource.worker, id.of_worker().0) {
        (Some(worker), Some(own)) => *worker != own,
        _ => false,
    };
    if booking.resource_id == resource.id && !elsewhere {
        return Ok(());
    }
    let why = format!("booking {id} is not on {resource} but on {}", booking.resource_id);
    Err(Refusal::new(Code::UnknownBooking, why).into())
}

pub(super) fn said(verb: &str, booking: &BookingView) -> String {
    format!("{verb} {} {} {}\n", booking.id, booking.resource_id, window(booking.starts_at, booking.ends_at))
}

/// From when to when.
pub(super) fn window(starts_at: Timestamp, ends_at: Timestamp) -> String {
    format!("{} to {}", until(starts_at), until(ends_at))
}

pub(super) fn shown<T: ToString>(fact: &Option<T>) -> String {
    fact.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn listed(bookings: &[BookingView]) -> String {
    let rows = bookings.iter().map(|booking| {
        [
            booking.id.to_string(),
            booking.resource_id.to_string(),
            until(booking.starts_at),
            until(booking.ends_at),
            booking.status.to_string(),
            shown(&booking.holder_id),
            shown(&booking.lease_id),
            shown(&booking.note),
        ]
    });
    table::list(["BOOKING", "RESOURCE", "FROM", "TO", "STATUS", "HOLDER", "LEASE", "NOTE"], rows)
}

fn sheet(booking: &BookingView) -> String {
    table::sheet([
        ("booking", booking.id.to_string()),
        ("resource", booking.resource_id.to_string()),
        ("from", until(booking.starts_at)),
        ("to", until(booking.ends_at)),
        ("status", booking.status.to_string()),
        ("holder", shown(&booking.holder_id)),
        ("lease", shown(&booking.lease_id)),
        ("series", shown(&booking.series_id)),
        ("note", shown(&booking.note)),
    ])
}
