//! What one calendar does, in the fewest words: two lists that are looked through from the front each time.

use std::sync::Arc;
use std::time::Duration;

use berth::admission::calendar::{CalendarCommand, CalendarReply, HeldSlot};
use berth::clock::{Now, RunTime};
use berth::model::{
    Asker, Booking, BookingId, BookingStatus, Code, Hold, HoldId, HoldStatus, Requester, Role, Slot, SlotLength,
    TokenHash, Window,
};
use jiff::Timestamp;

use super::diary::Diary;

/// What is true of the calendar, in no order.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub bookings: Vec<Booking>,
    pub holds: Vec<(Hold, RunTime)>,
    pub paused: bool,
}

/// A refusal: its code, and the booking that a conflict names.
pub type No = (Code, Option<BookingId>);

fn no<T>(code: Code) -> Result<T, No> {
    Err((code, None))
}

/// Start and end in microseconds.
pub fn span(window: Window) -> (i128, i128) {
    (window.starts_at().as_microsecond().into(), window.ends_at().as_microsecond().into())
}

fn named(slot: Slot) -> (i128, i128) {
    let from = i128::from(slot.starts_at.as_microsecond());
    match slot.length {
        SlotLength::Lasting(width) => (from, from + width.as_micros() as i128),
        SlotLength::Until(to) => (from, to.as_microsecond().into()),
    }
}

pub fn cross(one: (i128, i128), other: (i128, i128)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

impl Model {
    pub fn expire(&mut self, now: Now) {
        for (hold, deadline) in &mut self.holds {
            if hold.status == HoldStatus::Active && deadline.0 <= now.run.0 {
                (hold.status, hold.settled_at) = (HoldStatus::Expired, Some(now.wall));
            }
        }
    }

    pub fn take(&mut self, diary: &Diary, now: Now, command: &CalendarCommand) -> Result<CalendarReply, No> {
        self.expire(now);
        let mut after = self.clone();
        let reply = after.decide(diary, now, command)?;
        *self = after;
        Ok(reply)
    }

    fn decide(&mut self, diary: &Diary, now: Now, command: &CalendarCommand) -> Result<CalendarReply, No> {
        match command.clone() {
            CalendarCommand::Book { holder, windows, series, note } => {
                if self.standing(now) + windows.len() > diary.rules.bookings_max {
                    return no(Code::RateLimited);
                }
                let mut made: Vec<Arc<Booking>> = Vec::new();
                for (id, slot) in windows {
                    let window = new_window(diary, now, slot)?;
                    let own = made.iter().any(|other| cross(span(other.window), span(window)));
                    let own_hold = self.free(window, &holder, None);
                    if own {
                        return no(Code::BadRequest);
                    }
                    if let Some(index) = own_hold? {
                        self.settle_hold(index, HoldStatus::Confirmed, Some(id.clone()), now);
                    }
                    let it = scheduled(diary, id, holder.clone(), window, now);
                    let it = Booking { series: series.clone(), note: note.clone(), ..it };
                    made.push(Arc::new(it.clone()));
                    self.bookings.push(it);
                }
                Ok(CalendarReply::Booked(made))
            }
            CalendarCommand::Reschedule { booking, to, asker } => {
                let index = self.of(&booking, &asker)?;
                let was = self.bookings[index].clone();
                if was.status != BookingStatus::Scheduled || was.window.ends_at() <= now.wall {
                    return no(Code::BadRequest);
                }
                let starts_at = to.starts_at.unwrap_or(was.window.starts_at());
                let width = Duration::from_micros((span(was.window).1 - span(was.window).0) as u64);
                let slot = Slot { starts_at, length: to.length.unwrap_or(SlotLength::Lasting(width)) };
                if starts_at != was.window.starts_at() {
                    new_window(diary, now, slot)?;
                }
                let window = window(diary, now, slot)?;
                if window.ends_at() <= now.wall {
                    return no(Code::BadRequest);
                }
                if window != was.window && self.free(window, &was.holder, Some(&booking))?.is_some() {
                    return no(Code::SlotHeld);
                }
                self.bookings[index].window = window;
                Ok(CalendarReply::Booking(Arc::new(self.bookings[index].clone())))
            }
            CalendarCommand::Cancel { booking, following, asker } => self.cancel(&booking, following, &asker, now),
            CalendarCommand::Hold { id, holder, slot, ttl, key, token } => {
                let ttl = ttl.unwrap_or(diary.rules.hold_ttl);
                if ttl > diary.rules.hold_ttl_max {
                    return no(Code::BadRequest);
                }
                let same = |(it, _): &&mut (Hold, RunTime)| {
                    key.is_some() && it.status == HoldStatus::Active && it.holder == holder && it.key == key
                };
                if let Some((known, deadline)) = self.holds.iter_mut().find(same) {
                    if span(known.window) != named(slot) {
                        return no(Code::IdempotencyConflict);
                    }
                    known.token = token;
                    return Ok(held(known, *deadline));
                }
                let window = new_window(diary, now, slot)?;
                if diary.node_paused || self.paused || !diary.rules.holds_enabled {
                    return no(Code::HoldsPaused);
                }
                let taken = self.claims().iter().any(|(other, ..)| cross(*other, span(window)));
                if taken {
                    return no(Code::HoldConflict);
                }
                if self.standing(now) >= diary.rules.bookings_max {
                    return no(Code::RateLimited);
                }
                let (resource_id, created_at, status) = (diary.resource.clone(), now.wall, HoldStatus::Active);
                let (booking, settled_at) = (None, None);
                let it =
                    Hold { id, resource_id, holder, window, status, ttl, key, token, booking, created_at, settled_at };
                let deadline = RunTime(now.run.0 + ttl);
                self.holds.push((it.clone(), deadline));
                Ok(held(&it, deadline))
            }
            CalendarCommand::Confirm { hold, token, booking, full: _, note } => {
                let (index, it) = self.held(&hold)?;
                if it.token != token {
                    return no(Code::InsufficientPermissions);
                }
                match it.status {
                    HoldStatus::Active if it.window.ends_at() <= now.wall => return no(Code::BadRequest),
                    HoldStatus::Active => {}
                    HoldStatus::Confirmed => {
                        let made = self.bookings.iter().find(|made| Some(&made.id) == it.booking.as_ref());
                        let made = made.ok_or((Code::UnknownBooking, it.booking.clone()))?;
                        return Ok(CalendarReply::Booking(Arc::new(made.clone())));
                    }
                    HoldStatus::Released | HoldStatus::Expired => return no(Code::HoldExpired),
                }
                self.settle_hold(index, HoldStatus::Confirmed, Some(booking.clone()), now);
                let made = Booking { note, ..scheduled(diary, booking, it.holder, it.window, now) };
                self.bookings.push(made.clone());
                Ok(CalendarReply::Booking(Arc::new(made)))
            }
            CalendarCommand::Release { hold, token, asker } => self.release(&hold, token, &asker, now),
            CalendarCommand::PauseHolds(paused) => {
                self.paused = paused;
                Ok(CalendarReply::Done)
            }
            CalendarCommand::Forget { bookings, holds } => {
                self.bookings.retain(|it| !bookings.contains(&it.id) || it.over_at() > now.wall);
                self.holds.retain(|(it, _)| !holds.contains(&it.id) || it.settled_at.is_none());
                Ok(CalendarReply::Done)
            }
        }
    }

    fn cancel(&mut self, id: &BookingId, following: bool, asker: &Asker, now: Now) -> Result<CalendarReply, No> {
        let index = self.of(id, asker)?;
        let was = self.bookings[index].clone();
        let stands = |it: &Booking| it.status == BookingStatus::Scheduled && it.window.ends_at() > now.wall;
        if !stands(&was) && was.status != BookingStatus::Cancelled && !following {
            return no(Code::BadRequest);
        }
        let mut rest: Vec<Booking> = Vec::new();
        for it in &mut self.bookings {
            let place = |it: &Booking| (it.window.starts_at(), it.id.clone());
            let later = following && was.series.is_some() && it.series == was.series && place(it) > place(&was);
            if stands(it) && (it.id == *id || later) {
                (it.status, it.claims, it.settled_at) = (BookingStatus::Cancelled, false, Some(now.wall));
                rest.push(it.clone());
            }
        }
        rest.retain(|it| it.id != *id);
        rest.sort_by_key(|it| (it.window.starts_at(), it.id.clone()));
        let rest = rest.into_iter().map(Arc::new).collect();
        Ok(CalendarReply::Cancelled(Arc::new(self.bookings[index].clone()), rest))
    }

    fn release(&mut self, id: &HoldId, token: Option<TokenHash>, asker: &Asker, now: Now) -> Result<CalendarReply, No> {
        let (index, it) = self.held(id)?;
        match token {
            Some(token) if token != it.token => return no(Code::InsufficientPermissions),
            None if asker.role != Role::Admin => return no(Code::InsufficientPermissions),
            _ => {}
        }
        match it.status {
            HoldStatus::Active => self.settle_hold(index, HoldStatus::Released, None, now),
            HoldStatus::Confirmed => return Err((Code::HoldExpired, it.booking)),
            HoldStatus::Released | HoldStatus::Expired => {}
        }
        let (it, deadline) = &self.holds[index];
        Ok(held(it, *deadline))
    }

    fn of(&self, id: &BookingId, asker: &Asker) -> Result<usize, No> {
        let index = self.bookings.iter().position(|it| it.id == *id).ok_or((Code::UnknownBooking, Some(id.clone())))?;
        let holder = &self.bookings[index].holder;
        let mine = (&holder.via, &holder.principal) == (&asker.requester.via, &asker.requester.principal);
        match asker.role {
            Role::Admin => Ok(index),
            Role::Agent if mine => Ok(index),
            Role::Agent | Role::Viewer => no(Code::InsufficientPermissions),
        }
    }

    fn held(&self, id: &HoldId) -> Result<(usize, Hold), No> {
        let index = self.holds.iter().position(|(it, _)| it.id == *id).ok_or((Code::UnknownHold, None))?;
        Ok((index, self.holds[index].0.clone()))
    }

    fn settle_hold(&mut self, index: usize, status: HoldStatus, booking: Option<BookingId>, now: Now) {
        let it = &mut self.holds[index].0;
        (it.status, it.booking, it.settled_at) = (status, booking, Some(now.wall));
    }

    /// Every claim: its window, whose it is, and the booking.
    pub fn claims(&self) -> Vec<((i128, i128), Requester, Option<BookingId>)> {
        let bookings = self.bookings.iter().filter(|it| it.claims);
        let bookings = bookings.map(|it| (span(it.window), it.holder.clone(), Some(it.id.clone())));
        let holds = self.holds.iter().filter(|(it, _)| it.status == HoldStatus::Active);
        let mut claims: Vec<_> =
            bookings.chain(holds.map(|(it, _)| (span(it.window), it.holder.clone(), None))).collect();
        claims.sort_by_key(|(window, ..)| *window);
        claims
    }

    fn standing(&self, now: Now) -> usize {
        self.claims().iter().filter(|((_, to), ..)| *to > now.wall.as_microsecond().into()).count()
    }

    /// The own hold on exactly this window, if there is one and nothing else.
    fn free(&self, window: Window, holder: &Requester, except: Option<&BookingId>) -> Result<Option<usize>, No> {
        let claims = self.claims();
        let mut taken = claims
            .iter()
            .filter(|(other, _, id)| cross(*other, span(window)) && (id.is_none() || id.as_ref() != except));
        if let Some((_, _, Some(id))) = taken.clone().find(|(_, _, id)| id.is_some()) {
            return Err((Code::BookingConflict, Some(id.clone())));
        }
        match taken.next() {
            None => Ok(None),
            Some((other, whose, _)) if *other == span(window) && whose == holder => {
                Ok(self.holds.iter().position(|(it, _)| it.status == HoldStatus::Active && it.window == window))
            }
            Some(_) => no(Code::SlotHeld),
        }
    }
}

fn new_window(diary: &Diary, now: Now, slot: Slot) -> Result<Window, No> {
    if slot.starts_at < now.wall { no(Code::BadRequest) } else { window(diary, now, slot) }
}

fn window(diary: &Diary, now: Now, slot: Slot) -> Result<Window, No> {
    let (from, to) = named(slot);
    let last = i128::from(now.wall.as_microsecond()) + diary.rules.horizon.as_micros() as i128;
    match from < to && to - from <= diary.rules.max_duration.as_micros() as i128 && to <= last {
        true => Ok(Window::try_from((from as i64, to as i64)).unwrap()),
        false => no(Code::BadRequest),
    }
}

fn scheduled(diary: &Diary, id: BookingId, holder: Requester, window: Window, now: Now) -> Booking {
    Booking {
        id,
        resource_id: diary.resource.clone(),
        holder,
        window,
        status: BookingStatus::Scheduled,
        claims: true,
        note: None,
        lease_id: None,
        series: None,
        created_at: now.wall,
        settled_at: None,
    }
}

fn held(it: &Hold, deadline: RunTime) -> CalendarReply {
    CalendarReply::Hold(HeldSlot { hold: Arc::new(it.clone()), deadline, expires_at: Timestamp::UNIX_EPOCH })
}
