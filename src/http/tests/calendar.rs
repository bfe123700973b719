//! The fake's calendars: they write down what they are asked, and answer what the test has laid ready.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::fake::Fake;
use crate::model::{
    Asker, Booking, BookingStatus, Caller, HoldStatus, NodeName, Refusal, Requester, SubName, TokenHash, Window,
};
use crate::service::calendar::Calendars;
use crate::service::calendar::views::DoctorView;
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall, HoldSeen};

pub(super) const BOOKING: &str = "book_0198f3a0-0000-4000-8000-000000000001";
pub(super) const HOLD: &str = "hold_0198f3a0-0000-4000-8000-000000000002";
pub(super) const SERIES: &str = "series_0198f3a0-0000-4000-8000-000000000003";

#[async_trait]
impl Calendars for Fake {
    fn asker(&self, caller: &Caller, sub: Option<SubName>) -> Asker {
        Asker { requester: Requester::local(caller.principal.clone(), sub), role: caller.role }
    }

    async fn calendar(&self, worker: Option<NodeName>, call: CalendarCall) -> Result<CalendarAnswer, Refusal> {
        self.calendar.lock().unwrap().push((worker, call));
        self.booked.lock().unwrap().pop_front().expect("the test has laid an answer ready")
    }

    async fn doctor(&self, caller: &Caller) -> Result<DoctorView, Refusal> {
        caller.must_be_admin("have the database looked at")?;
        let violations = vec!["two bookings of pixel overlap".to_owned()];
        Ok(DoctorView { ok: false, holds_paused: true, violations })
    }
}

impl Fake {
    /// Lays an answer ready.
    pub fn answers(&self, answer: CalendarAnswer) {
        self.booked.lock().unwrap().push_back(Ok(answer));
    }

    /// Lays a refusal ready.
    pub fn refuses(&self, refusal: Refusal) {
        self.booked.lock().unwrap().push_back(Err(refusal));
    }

    /// The latest call: the worker that was named, who asks, and for what.
    pub fn called(&self) -> (Option<NodeName>, Asker, CalendarAsk) {
        let (worker, call) = self.calendar.lock().unwrap().last().cloned().expect("something was asked");
        (worker, call.asker, call.ask)
    }

    /// The hash of the token in the latest call.
    pub fn token(&self) -> Option<TokenHash> {
        match self.called().2 {
            CalendarAsk::Hold { token, .. } | CalendarAsk::Confirm { token, .. } => Some(token),
            CalendarAsk::Release { token, .. } => token,
            other => panic!("no token is in {other:?}"),
        }
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A booking of the first minute of 1970 with all that one may have.
pub(super) fn booking(holder: &str) -> Arc<Booking> {
    Arc::new(Booking {
        id: BOOKING.parse().unwrap(),
        resource_id: "pixel".parse().unwrap(),
        holder: holder.parse().unwrap(),
        window: Window::new(at(0), at(60)).unwrap(),
        status: BookingStatus::Fulfilled,
        claims: true,
        note: Some("mine".parse().unwrap()),
        lease_id: Some("lse_1".parse().unwrap()),
        series: Some(SERIES.parse().unwrap()),
        created_at: at(0),
        settled_at: None,
    })
}

/// A hold of the first minute of 1970.
pub(super) fn hold(holder: &str) -> HoldSeen {
    HoldSeen {
        id: HOLD.parse().unwrap(),
        resource_id: "pixel".parse().unwrap(),
        holder: holder.parse().unwrap(),
        window: Window::new(at(0), at(60)).unwrap(),
        status: HoldStatus::Active,
        expires_at: at(600),
        booking: None,
    }
}
