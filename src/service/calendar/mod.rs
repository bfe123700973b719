//! Bookings and holds, as the front doors ask for them (SPEC §5, §6).
//!
//! Every operation is one [`CalendarCall`]. What differs between a host and a gateway is where a call goes, and that is
//! the one method [`Calendars::calendar`]; what a body says, what an answer looks like and who sees what of it is the same
//! on both.

pub mod ask;
mod gateway;
mod host;
mod merge;
#[cfg(test)]
mod tests;
pub mod views;

use async_trait::async_trait;

use self::ask::{BookBody, BookingQuery, ConfirmBody, HoldBody, RescheduleBody, sub_name};
use self::views::{
    Booked, BookingView, Bookings, Cancelled, DoctorView, HoldCreated, HoldView, Holds, OneBooking, OneHold, Paused,
};
use super::ask::Headers;
use crate::admission::calendar::not_your_hold;
use crate::model::{
    Asker, BookingFilter, BookingId, Caller, Code, HoldId, NodeName, Refusal, ResourceAddress, Role, SubName,
};
use crate::trust::HoldToken;
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall, HoldSeen};

/// The calendars of a node, or of all workers of a gateway. Every wait in here is bounded.
#[async_trait]
pub trait Calendars: Send + Sync + 'static {
    /// Who asks, as the workers know it.
    fn asker(&self, caller: &Caller, sub: Option<SubName>) -> Asker;

    /// Carries a call out where it belongs. `worker` is the one that a resource's address names. The ids of bookings and
    /// holds are this node's, in the call and in the answer.
    async fn calendar(&self, worker: Option<NodeName>, call: CalendarCall) -> Result<CalendarAnswer, Refusal>;

    /// A page of the bookings of all resources, and the workers whose bookings are not in it because they are away.
    async fn bookings_of_all(&self, call: CalendarCall) -> Result<(CalendarAnswer, Vec<NodeName>), Refusal> {
        Ok((self.calendar(None, call).await?, Vec::new()))
    }

    /// Asks the database for what must not be; for admins.
    async fn doctor(&self, caller: &Caller) -> Result<DoctorView, Refusal>;

    /// Books a window, or one and its repetitions.
    async fn book(
        &self,
        caller: &Caller,
        resource: ResourceAddress,
        body: BookBody,
        headers: Headers,
    ) -> Result<Booked, Refusal> {
        let asker = self.asker(caller, sub_name(body.requester.clone(), &headers)?);
        let ask = body.into_ask(resource.id)?;
        match self.calendar(resource.worker, call(&asker, ask)).await? {
            CalendarAnswer::Booked { series: Some(series_id), bookings } => {
                let bookings = bookings.iter().map(|booking| BookingView::new(booking, &asker)).collect();
                Ok(Booked::Series { series_id, bookings })
            }
            CalendarAnswer::Booked { series: None, bookings } if bookings.len() == 1 => {
                Ok(Booked::One { booking: BookingView::new(&bookings[0], &asker) })
            }
            other => Err(does_not_fit(&other)),
        }
    }

    /// Bookings of one resource, or of all. Over all an agent sees its own.
    async fn bookings(
        &self,
        caller: &Caller,
        resource: Option<ResourceAddress>,
        query: BookingQuery,
    ) -> Result<Bookings, Refusal> {
        let asker = self.asker(caller, None);
        let limit = query.page()?;
        let own = query.mine || resource.is_none() && asker.role == Role::Agent;
        let filter = BookingFilter {
            from: query.from,
            to: query.to,
            status: query.status,
            owner: own.then(|| asker.requester.owner()),
            after: query.after,
        };
        let (answer, unreachable) = match resource {
            Some(ResourceAddress { worker, id }) => {
                let ask = CalendarAsk::Bookings { resource: Some(id), filter, limit };
                (self.calendar(worker, call(&asker, ask)).await?, Vec::new())
            }
            None => {
                let ask = CalendarAsk::Bookings { resource: None, filter, limit };
                self.bookings_of_all(call(&asker, ask)).await?
            }
        };
        match answer {
            CalendarAnswer::Bookings { bookings, next } => {
                let bookings = bookings.iter().map(|booking| BookingView::new(booking, &asker)).collect();
                Ok(Bookings { bookings, next, unreachable })
            }
            other => Err(does_not_fit(&other)),
        }
    }

    /// One booking.
    async fn booking(&self, caller: &Caller, id: BookingId) -> Result<OneBooking, Refusal> {
        let asker = self.asker(caller, None);
        one_booking(self.calendar(None, call(&asker, CalendarAsk::Booking(id))).await?, &asker)
    }

    /// Gives a booking another window.
    async fn reschedule(&self, caller: &Caller, id: BookingId, body: RescheduleBody) -> Result<OneBooking, Refusal> {
        let asker = self.asker(caller, None);
        let ask = body.into_ask(id)?;
        one_booking(self.calendar(None, call(&asker, ask)).await?, &asker)
    }

    /// Gives a booking up, and with `following` all later ones of its series.
    async fn cancel_booking(&self, caller: &Caller, id: BookingId, following: bool) -> Result<Cancelled, Refusal> {
        let asker = self.asker(caller, None);
        match self.calendar(None, call(&asker, CalendarAsk::Cancel { booking: id, following })).await? {
            CalendarAnswer::Cancelled { booking, following: later } => {
                let view = |booking: &_| BookingView::new(booking, &asker);
                let later = following.then(|| later.iter().map(|booking| view(booking)).collect());
                Ok(Cancelled { booking: view(&booking), following: later })
            }
            other => Err(does_not_fit(&other)),
        }
    }

    /// Holds a slot. The token is in this answer and nowhere else: what goes on from here is its hash, and when nothing
    /// is held it is dropped.
    async fn hold(
        &self,
        caller: &Caller,
        resource: ResourceAddress,
        body: HoldBody,
        headers: Headers,
    ) -> Result<HoldCreated, Refusal> {
        let asker = self.asker(caller, sub_name(body.requester.clone(), &headers)?);
        let token = HoldToken::generate()?;
        let ask = body.into_ask(resource.id, headers.idempotency_key, token.hash())?;
        let hold = seen(self.calendar(resource.worker, call(&asker, ask)).await?)?;
        Ok(HoldCreated { hold: HoldView::new(hold, &asker), token })
    }

    /// One hold, for its holder or an admin.
    async fn one_hold(&self, caller: &Caller, id: HoldId) -> Result<OneHold, Refusal> {
        not_for_viewers(caller)?;
        let asker = self.asker(caller, None);
        let hold = seen(self.calendar(None, call(&asker, CalendarAsk::OneHold(id))).await?)?;
        match asker.may_see_hold_of(&hold.holder) {
            true => Ok(OneHold { hold: HoldView::new(hold, &asker) }),
            false => Err(not_your_hold(&hold.id)),
        }
    }

    /// The holds of a resource: an admin's are all, an agent's its own.
    async fn holds(&self, caller: &Caller, resource: ResourceAddress) -> Result<Holds, Refusal> {
        not_for_viewers(caller)?;
        let asker = self.asker(caller, None);
        match self.calendar(resource.worker, call(&asker, CalendarAsk::Holds(resource.id))).await? {
            CalendarAnswer::Holds(mut holds) => {
                // What a worker says is a claim.
                holds.retain(|hold| asker.may_see_hold_of(&hold.holder));
                Ok(Holds { holds: holds.into_iter().map(|hold| HoldView::new(hold, &asker)).collect() })
            }
            other => Err(does_not_fit(&other)),
        }
    }

    /// Turns a hold into a booking, for whoever shows the token.
    async fn confirm(&self, caller: &Caller, id: HoldId, body: ConfirmBody) -> Result<OneBooking, Refusal> {
        let asker = self.asker(caller, None);
        one_booking(self.calendar(None, call(&asker, body.into_ask(id))).await?, &asker)
    }

    /// Gives a hold back, for whoever shows the token, or an admin.
    async fn release_hold(&self, caller: &Caller, id: HoldId, token: Option<HoldToken>) -> Result<OneHold, Refusal> {
        let asker = self.asker(caller, None);
        let token = token.map(|token| token.hash());
        let hold = seen(self.calendar(None, call(&asker, CalendarAsk::Release { hold: id, token })).await?)?;
        Ok(OneHold { hold: HoldView::new(hold, &asker) })
    }

    /// Stops new holds on one resource or on all, or lets them be made again; for admins.
    async fn pause_holds(
        &self,
        caller: &Caller,
        resource: Option<ResourceAddress>,
        paused: bool,
    ) -> Result<Paused, Refusal> {
        caller.must_be_admin(if paused { "pause holds" } else { "resume holds" })?;
        let asker = self.asker(caller, None);
        let (worker, resource) = resource.map_or((None, None), |address| (address.worker, Some(address.id)));
        match self.calendar(worker, call(&asker, CalendarAsk::PauseHolds { resource, paused })).await? {
            CalendarAnswer::Paused(paused) => Ok(Paused { paused }),
            other => Err(does_not_fit(&other)),
        }
    }
}

fn call(asker: &Asker, ask: CalendarAsk) -> CalendarCall {
    CalendarCall { asker: asker.clone(), ask }
}

fn one_booking(answer: CalendarAnswer, asker: &Asker) -> Result<OneBooking, Refusal> {
    match answer {
        CalendarAnswer::Booking(booking) => Ok(OneBooking { booking: BookingView::new(&booking, asker) }),
        other => Err(does_not_fit(&other)),
    }
}

fn seen(answer: CalendarAnswer) -> Result<HoldSeen, Refusal> {
    match answer {
        CalendarAnswer::Hold(hold) => Ok(hold),
        other => Err(does_not_fit(&other)),
    }
}

fn not_for_viewers(caller: &Caller) -> Result<(), Refusal> {
    match caller.role {
        Role::Viewer => {
            let message = format!("{} is a viewer, and holds are for their holders and admins", caller.principal);
            Err(Refusal::new(Code::InsufficientPermissions, message))
        }
        Role::Agent | Role::Admin => Ok(()),
    }
}

fn does_not_fit(answer: &CalendarAnswer) -> Refusal {
    tracing::error!(?answer, "an answer of a calendar does not fit its call");
    Refusal::internal("the calendar's answer does not fit")
}
