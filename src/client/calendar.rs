//! The calls about bookings and holds, one for each route (SPEC §13).

use reqwest::Method;
use reqwest::header::HeaderValue;

use super::{Client, ClientError};
use crate::model::time::rfc3339;
use crate::model::{BookingId, HoldId, Refusal, ResourceAddress};
use crate::service::calendar::ask::{BookBody, BookingQuery, ConfirmBody, HoldBody, RescheduleBody};
use crate::service::calendar::views::{
    Booked, BookingView, Bookings, Cancelled, DoctorView, HoldCreated, HoldView, Holds, OneBooking, OneHold, Paused,
};
use crate::trust::HoldToken;

/// The header that shows the token of a hold.
const HOLD_TOKEN: &str = "Berth-Hold-Token";

/// Every call errs with a [`ClientError`]; the codes of a refusal are those of SPEC §11.
impl Client {
    /// Books a window, or one and its repetitions: all of them or none (SPEC §5).
    pub async fn book(&self, resource: &ResourceAddress, body: &BookBody) -> Result<Booked, ClientError> {
        self.ask(self.question(Method::POST, &["resources", &resource.to_string(), "bookings"]).json(body)).await
    }

    /// A page of the bookings of one resource, or of all of them.
    pub async fn bookings(
        &self,
        resource: Option<&ResourceAddress>,
        query: &BookingQuery,
    ) -> Result<Bookings, ClientError> {
        let question = match resource {
            Some(resource) => self.question(Method::GET, &["resources", &resource.to_string(), "bookings"]),
            None => self.question(Method::GET, &["bookings"]),
        };
        let mut wanted = Vec::new();
        wanted.extend(query.from.map(|at| ("from", rfc3339(at))));
        wanted.extend(query.to.map(|at| ("to", rfc3339(at))));
        wanted.extend(query.status.map(|status| ("status", status.as_str().to_owned())));
        wanted.extend(query.mine.then(|| ("mine", "true".to_owned())));
        wanted.extend(query.after.as_ref().map(|after| ("after", after.to_string())));
        wanted.extend(query.limit.map(|limit| ("limit", limit.to_string())));
        self.ask(if wanted.is_empty() { question } else { question.query(&wanted) }).await
    }

    /// One booking.
    pub async fn booking(&self, id: &BookingId) -> Result<BookingView, ClientError> {
        let question = self.question(Method::GET, &["bookings", id.as_str()]);
        self.ask(question).await.map(|OneBooking { booking }| booking)
    }

    /// Gives a booking another window, or leaves it as it was.
    pub async fn reschedule(&self, id: &BookingId, body: &RescheduleBody) -> Result<BookingView, ClientError> {
        let question = self.question(Method::PATCH, &["bookings", id.as_str()]).json(body);
        self.ask(question).await.map(|OneBooking { booking }| booking)
    }

    /// Gives a booking up, with `following` all later ones of its series too. Twice is once.
    pub async fn cancel_booking(&self, id: &BookingId, following: bool) -> Result<Cancelled, ClientError> {
        let question = self.question(Method::DELETE, &["bookings", id.as_str()]);
        self.ask(if following { question.query(&[("following", "true")]) } else { question }).await
    }

    /// Holds a slot (SPEC §6); the answer is the only one that has its token.
    pub async fn hold_slot(&self, resource: &ResourceAddress, body: &HoldBody) -> Result<HoldCreated, ClientError> {
        self.ask(self.question(Method::POST, &["resources", &resource.to_string(), "holds"]).json(body)).await
    }

    /// The holds of a resource that the caller may see.
    pub async fn holds(&self, resource: &ResourceAddress) -> Result<Vec<HoldView>, ClientError> {
        let question = self.question(Method::GET, &["resources", &resource.to_string(), "holds"]);
        self.ask(question).await.map(|Holds { holds }| holds)
    }

    /// One hold.
    pub async fn hold(&self, id: &HoldId) -> Result<HoldView, ClientError> {
        self.ask(self.question(Method::GET, &["holds", id.as_str()])).await.map(|OneHold { hold }| hold)
    }

    /// Turns a hold into a booking of its holder. Twice with the same token is once.
    pub async fn confirm(&self, id: &HoldId, body: &ConfirmBody) -> Result<BookingView, ClientError> {
        let question = self.question(Method::POST, &["holds", id.as_str(), "confirm"]).json(body);
        self.ask(question).await.map(|OneBooking { booking }| booking)
    }

    /// Gives a hold back; an admin needs no token. A text that no header can carry is refused here, as a token that is none.
    pub async fn release_hold(&self, id: &HoldId, token: Option<&HoldToken>) -> Result<HoldView, ClientError> {
        let question = self.question(Method::DELETE, &["holds", id.as_str()]);
        let question = match token {
            Some(token) => {
                let mut value = HeaderValue::from_str(token.expose()).map_err(|_| {
                    ClientError::Refused(Refusal::bad_field("token", "is no token of a hold; send it as it was shown"))
                })?;
                value.set_sensitive(true);
                question.header(HOLD_TOKEN, value)
            }
            None => question,
        };
        self.ask(question).await.map(|OneHold { hold }| hold)
    }

    /// Stops new holds on a resource or on all of them, or has them made again. Answers whether they are stopped there.
    pub async fn pause_holds(&self, resource: Option<&ResourceAddress>, paused: bool) -> Result<bool, ClientError> {
        let verb = if paused { "pause" } else { "resume" };
        let question = match resource {
            Some(resource) => self.question(Method::POST, &["resources", &resource.to_string(), "holds", verb]),
            None => self.question(Method::POST, &["holds", verb]),
        };
        self.ask(question).await.map(|Paused { paused }| paused)
    }

    /// Has the node look for what must not be. "Something is wrong" is an answer here, no error.
    pub async fn doctor(&self) -> Result<DoctorView, ClientError> {
        self.ask(self.question(Method::GET, &["doctor"])).await
    }
}
