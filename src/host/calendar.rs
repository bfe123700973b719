//! Bookings and holds at the desk: where each call goes, and what comes back (SPEC §5, §6).

use std::time::Duration;

use ractor::RpcReplyPort;

use super::calendar_index::{Countable, Counted};
use super::desk::{DeskState, OpKind};
use super::directory::Entry;
use super::listing::{self, seen};
use super::message::Said;
use super::settle::refusal_of;
use crate::admission::calendar::{
    Calendar, CalendarCommand, CalendarReply, not_your_hold, other_slot, too_many_bookings, unknown_booking,
    unknown_hold,
};
use crate::admission::resource::{Command, Reply};
use crate::model::{
    Asker, BookingId, Code, HoldId, IdempotencyKey, Note, Refusal, Repeat, Requester, ResourceAddress, ResourceId,
    Role, SeriesId, Slot, SlotLength, TokenHash,
};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall};

/// A command about a calendar, as long as it is out.
pub(super) struct CalendarOp {
    /// What was asked for, to be recognized on disk should the answer be lost.
    pub(super) command: CalendarCommand,
    /// What its caller has been counted for.
    counted: Option<Counted>,
    /// The series that it makes.
    series: Option<SeriesId>,
    /// Who asks; none for the desk itself.
    reply: Option<RpcReplyPort<Said<CalendarAnswer>>>,
}

impl DeskState {
    /// Takes a call in: answers it at once, or gives it to a resource.
    pub(super) fn calendar(&mut self, call: CalendarCall, reply: RpcReplyPort<Said<CalendarAnswer>>) {
        if reply.is_closed() {
            // Whoever asked has given up meanwhile, and nothing has been begun.
            return;
        }
        let CalendarCall { asker, ask } = call;
        match self.begin_calendar(asker, ask) {
            Ok(Begun::Answer(answer)) => self.say(reply, Ok(answer)),
            Ok(Begun::Look(look)) => {
                let number = self.reporter.number();
                // It may be long, and nobody else is to wait for it.
                tokio::task::spawn_blocking(move || {
                    // A reader that has gone needs no answer.
                    let _ = reply.send(Said { result: Ok(look()), number });
                });
            }
            Ok(Begun::Pause { resource, by_gateway, paused }) => self.pause_holds(resource, by_gateway, paused, reply),
            Ok(Begun::Command { resource, command, counted, series }) => {
                if let Some(counted) = &counted {
                    self.index.ask(counted);
                }
                self.send_calendar(&resource, CalendarOp { command, counted, series, reply: Some(reply) });
            }
            Err(refusal) => self.say(reply, Err(refusal)),
        }
    }

    pub(super) fn send_calendar(&mut self, resource: &ResourceId, op: CalendarOp) {
        let command = Command::Calendar(op.command.clone());
        self.send(resource, OpKind::Calendar(Box::new(op)), command);
    }

    fn begin_calendar(&mut self, asker: Asker, ask: CalendarAsk) -> Result<Begun, Refusal> {
        match ask {
            CalendarAsk::Book { resource, slot, repeat, note } => self.book(asker, resource, slot, repeat, note),
            CalendarAsk::Reschedule { booking, to } => {
                let resource = self.resource_of_booking(&booking)?;
                Ok(Begun::command(resource, CalendarCommand::Reschedule { booking, to, asker }))
            }
            CalendarAsk::Cancel { booking, following } => {
                let resource = self.resource_of_booking(&booking)?;
                Ok(Begun::command(resource, CalendarCommand::Cancel { booking, following, asker }))
            }
            CalendarAsk::Hold { resource, slot, ttl_ms, key, token } => {
                let ttl = ttl_ms.map(Duration::from_millis);
                if ttl.is_some_and(|ttl| ttl.is_zero()) {
                    return Err(Refusal::bad_field("ttlMs", "must be whole milliseconds, at least 1"));
                }
                let resource = self.may_be_claimed(&asker, resource, "hold a slot")?;
                let counted = self.count_hold(&asker.requester, &resource, key.as_ref())?;
                let (id, holder) = (HoldId::generate(), asker.requester);
                let command = CalendarCommand::Hold { id, holder, slot, ttl, key, token };
                Ok(Begun::Command { resource, command, counted: Some(counted), series: None })
            }
            CalendarAsk::Confirm { hold, token, note } => {
                not_a_viewer(&asker, "confirm a hold")?;
                let resource = self.resource_of_hold(&hold)?;
                let (full, counted) = self.count_confirmed(&resource, &hold, &token);
                let booking = BookingId::generate();
                let command = CalendarCommand::Confirm { hold, token, booking, full, note };
                Ok(Begun::Command { resource, command, counted, series: None })
            }
            CalendarAsk::Release { hold, token } => {
                not_a_viewer(&asker, "release a hold")?;
                let resource = self.resource_of_hold(&hold)?;
                Ok(Begun::command(resource, CalendarCommand::Release { hold, token, asker }))
            }
            CalendarAsk::Booking(id) => {
                let resource = self.resource_of_booking(&id)?;
                let entry = self.directory.get(&resource);
                let booking = entry.and_then(|entry| entry.state.calendar.booking(&id)).cloned();
                booking.map(|it| Begun::Answer(CalendarAnswer::Booking(it))).ok_or_else(|| unknown_booking(&id))
            }
            CalendarAsk::Bookings { resource, filter, limit } => {
                let calendars = self.calendars(resource)?;
                Ok(Begun::Look(Box::new(move || listing::bookings(&calendars, &filter, limit))))
            }
            CalendarAsk::OneHold(id) => {
                let resource = self.resource_of_hold(&id)?;
                let held = self.directory.get(&resource).and_then(|entry| entry.state.calendar.hold(&id));
                let held = held.ok_or_else(|| unknown_hold(&id))?;
                if !asker.may_see_hold_of(&held.hold.holder) {
                    return Err(not_your_hold(&id));
                }
                Ok(Begun::Answer(CalendarAnswer::Hold(seen(held, self.clock.now()))))
            }
            CalendarAsk::Holds(_) if asker.role == Role::Viewer => {
                Err(Refusal::new(Code::InsufficientPermissions, "a viewer sees no holds; ask an admin"))
            }
            CalendarAsk::Holds(resource) => {
                let (calendars, now) = (self.calendars(Some(resource))?, self.clock.now());
                Ok(Begun::Look(Box::new(move || listing::holds(&calendars, &asker, now))))
            }
            CalendarAsk::PauseHolds { resource, paused } => {
                if asker.role != Role::Admin {
                    let message = "only an admin may pause and resume holds";
                    return Err(Refusal::new(Code::InsufficientPermissions, message));
                }
                let resource = resource.map(|resource| self.here(resource)).transpose()?;
                Ok(Begun::Pause { resource, by_gateway: asker.requester.via.is_some(), paused })
            }
        }
    }

    fn book(
        &mut self,
        asker: Asker,
        resource: ResourceId,
        slot: Slot,
        repeat: Option<Repeat>,
        note: Option<Note>,
    ) -> Result<Begun, Refusal> {
        let resource = self.may_be_claimed(&asker, resource, "book")?;
        let starts = match &repeat {
            Some(repeat) => repeat.starts(slot.starts_at).map_err(|(field, why)| Refusal::bad_field(field, why))?,
            None => vec![slot.starts_at],
        };
        // Each occurrence lasts as long as the first, which is named as the caller has named it.
        let later = match slot.length {
            SlotLength::Until(ends_at) => {
                SlotLength::Lasting(Duration::try_from(ends_at.duration_since(slot.starts_at)).unwrap_or_default())
            }
            length => length,
        };
        let counted = Some(self.count_booking(&asker.requester)?);
        let window = |(index, starts_at)| {
            let length = if index == 0 { slot.length } else { later };
            (BookingId::generate(), Slot { starts_at, length })
        };
        let windows = starts.into_iter().enumerate().map(window).collect();
        let series = repeat.map(|_| SeriesId::generate());
        let holder = asker.requester;
        let command = CalendarCommand::Book { holder, windows, series: series.clone(), note };
        Ok(Begun::Command { resource, command, counted, series })
    }

    /// Whether one more booking is within bounds.
    fn count_booking(&self, holder: &Requester) -> Result<Counted, Refusal> {
        let (full, counted) = self.one_more_booking(holder);
        if full { Err(too_many_bookings()) } else { Ok(counted) }
    }

    fn one_more_booking(&self, holder: &Requester) -> (bool, Counted) {
        let most = self.rules.limits.bookings_per_principal;
        let full = self.index.count(holder, Countable::Booking, self.clock.now()) >= most;
        (full, Counted { holder: holder.clone(), what: Countable::Booking, key: None })
    }

    /// The same for what a hold becomes. Nothing becomes of one that is over, nor for whoever has not its token.
    fn count_confirmed(&mut self, resource: &ResourceId, hold: &HoldId, token: &TokenHash) -> (bool, Option<Counted>) {
        let held = self.directory.get(resource).and_then(|entry| entry.state.calendar.hold(hold));
        let active = held.filter(|held| held.hold.settled_at.is_none() && held.hold.token == *token);
        let Some(holder) = active.map(|held| held.hold.holder.clone()) else { return (false, None) };
        let (full, counted) = self.one_more_booking(&holder);
        (full, Some(counted))
    }

    /// Whether one more hold is within bounds. Asking again under the key of an active one makes none, but it counts
    /// until that is certain: the hold may just be running out.
    fn count_hold(
        &self,
        requester: &Requester,
        resource: &ResourceId,
        key: Option<&IdempotencyKey>,
    ) -> Result<Counted, Refusal> {
        let known = key.and_then(|key| self.stands_for(requester, key));
        if known.is_some_and(|known| known != resource) {
            return Err(other_slot());
        }
        let most = self.rules.limits.holds_per_principal;
        if known.is_none() && self.index.count(requester, Countable::Hold, self.clock.now()) >= most {
            let message = format!("you hold {most} slots, as many as one may; confirm or release some");
            return Err(Refusal::new(Code::RateLimited, message).retry_after(Duration::from_secs(60)));
        }
        let key = key.map(|key| (key.clone(), resource.clone()));
        Ok(Counted { holder: requester.clone(), what: Countable::Hold, key })
    }

    /// The resource for a hold on which a key stands: one that is asked for, or is there and not over.
    fn stands_for(&self, requester: &Requester, key: &IdempotencyKey) -> Option<&ResourceId> {
        let there = || {
            let id = self.index.of_key(requester, key)?;
            let resource = self.index.of_hold(id)?;
            let held = self.directory.get(resource)?.state.calendar.hold(id)?;
            (held.deadline > self.clock.now().run).then_some(resource)
        };
        self.index.of_asked_key(requester, key).or_else(there)
    }

    /// A resource of which something new may be claimed.
    fn may_be_claimed(&self, asker: &Asker, resource: ResourceId, what: &str) -> Result<ResourceId, Refusal> {
        not_a_viewer(asker, what)?;
        if self.stopping {
            return Err(Refusal::new(Code::Stopping, "this node is going down; ask again when it is back"));
        }
        self.here(resource)
    }

    fn here(&self, resource: ResourceId) -> Result<ResourceId, Refusal> {
        self.resolve(&ResourceAddress { worker: None, id: resource })
    }

    fn resource_of_booking(&self, id: &BookingId) -> Result<ResourceId, Refusal> {
        self.index.of_booking(id).cloned().ok_or_else(|| unknown_booking(id))
    }

    fn resource_of_hold(&self, id: &HoldId) -> Result<ResourceId, Refusal> {
        self.index.of_hold(id).cloned().ok_or_else(|| unknown_hold(id))
    }

    /// The calendars of one resource or of all, as they are now: a copy costs nothing, and they are looked through
    /// elsewhere.
    fn calendars(&self, resource: Option<ResourceId>) -> Result<Vec<Calendar>, Refusal> {
        let copy = |entry: &Entry| entry.state.calendar.clone();
        match resource {
            Some(resource) => Ok(self.directory.get(&self.here(resource)?).map(copy).into_iter().collect()),
            None => Ok(self.directory.iter().filter(|entry| !entry.state.calendar.is_empty()).map(copy).collect()),
        }
    }

    /// A command about a calendar is done.
    pub(super) fn calendar_settled(&mut self, op: CalendarOp, reply: Reply) {
        let CalendarOp { counted, series, reply: caller, .. } = op;
        if let Some(counted) = counted {
            self.index.answered(&counted);
        }
        let now = self.clock.now();
        let answer = match reply {
            Reply::Calendar(CalendarReply::Booked(bookings)) => Ok(CalendarAnswer::Booked { series, bookings }),
            Reply::Calendar(CalendarReply::Booking(booking)) => Ok(CalendarAnswer::Booking(booking)),
            Reply::Calendar(CalendarReply::Cancelled(booking, following)) => {
                Ok(CalendarAnswer::Cancelled { booking, following })
            }
            Reply::Calendar(CalendarReply::Hold(held)) => Ok(CalendarAnswer::Hold(seen(&held, now))),
            Reply::Calendar(CalendarReply::Done) => match &op.command {
                // Whether there can be new ones there now, for whatever reason.
                CalendarCommand::PauseHolds(paused) => {
                    let elsewhere = self.monitor.is_paused() || !self.rules.calendar.holds_enabled;
                    Ok(CalendarAnswer::Paused(*paused || elsewhere))
                }
                _ => return,
            },
            reply => Err(refusal_of(reply)),
        };
        if let Some(caller) = caller {
            self.say(caller, answer);
        }
    }

    /// Gives up what has been over for too long.
    pub(super) fn forget_old_bookings(&mut self) {
        for (resource, (bookings, holds)) in self.index.to_forget(self.clock.now().wall) {
            let command = CalendarCommand::Forget { bookings, holds };
            self.send_calendar(&resource, CalendarOp { command, counted: None, series: None, reply: None });
        }
    }

    /// The pause of one resource goes to its calendar.
    pub(super) fn pause_resource(
        &mut self,
        resource: &ResourceId,
        paused: bool,
        reply: RpcReplyPort<Said<CalendarAnswer>>,
    ) {
        let command = CalendarCommand::PauseHolds(paused);
        self.send_calendar(resource, CalendarOp { command, counted: None, series: None, reply: Some(reply) });
    }
}

/// What a call leads to.
enum Begun {
    Answer(CalendarAnswer),
    Look(Box<dyn FnOnce() -> CalendarAnswer + Send>),
    Pause { resource: Option<ResourceId>, by_gateway: bool, paused: bool },
    Command { resource: ResourceId, command: CalendarCommand, counted: Option<Counted>, series: Option<SeriesId> },
}

impl Begun {
    fn command(resource: ResourceId, command: CalendarCommand) -> Self {
        Begun::Command { resource, command, counted: None, series: None }
    }
}

fn not_a_viewer(asker: &Asker, what: &str) -> Result<(), Refusal> {
    match asker.role {
        Role::Viewer => Err(Refusal::new(
            Code::InsufficientPermissions,
            format!("a viewer may not {what}; ask an admin for another token"),
        )),
        Role::Agent | Role::Admin => Ok(()),
    }
}
