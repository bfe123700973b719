//! The calls, one for each route (SPEC §13).

use std::time::Duration;

use reqwest::{Method, StatusCode};

use super::{Client, ClientError};
use crate::limits::{ACQUIRE_BOUND, LONG_POLL_MAX};
use crate::model::{EventKind, Fence, LeaseId, RequestId, ResourceAddress, Selector, TokenId};
use crate::service::answers::{
    Acquired, Events, Leases, Left, OneLease, OneRequest, OneResource, OneToken, Renewed, Resources, TokenCreated,
    Tokens,
};
use crate::service::ask::{AcquireBody, RenewBody, RequestBody, TokenBody};
use crate::service::views::{LeaseView, Readiness, Released, RequestView, ResourceView, StatusView, WaitingRoomView};
use crate::trust::TokenInfo;

/// A lease request is answered within 10 s by SPEC §2; as much again for the way.
const REQUEST_BOUND: Duration = Duration::from_secs(20);
/// What a long poll may take beyond its wait.
const LONG_POLL_SLACK: Duration = Duration::from_secs(10);

/// Every call errs with a [`ClientError`]; the codes of a refusal are those of SPEC §11.
impl Client {
    /// Leases a named resource now, or stands in its waiting room if the body says so (SPEC §2, door 1).
    pub async fn acquire(&self, resource: &ResourceAddress, body: &AcquireBody) -> Result<Acquired, ClientError> {
        let question = self.question(Method::POST, &["resources", &resource.to_string(), "leases"]).json(body);
        // Its device may be made ready first.
        self.ask(question.timeout(ACQUIRE_BOUND + LONG_POLL_SLACK)).await
    }

    /// Who waits for a resource by its name.
    pub async fn waiting_room(&self, resource: &ResourceAddress) -> Result<WaitingRoomView, ClientError> {
        self.ask(self.question(Method::GET, &["resources", &resource.to_string(), "waiting-room"])).await
    }

    /// Leaves a waiting room.
    pub async fn leave(&self, resource: &ResourceAddress) -> Result<Left, ClientError> {
        self.ask(self.question(Method::DELETE, &["resources", &resource.to_string(), "waiting-room", "me"])).await
    }

    /// Asks for a lease (SPEC §2, door 2). A request that failed at once is a refusal; one that is still waiting is
    /// asked about with [`Self::lease_request`].
    pub async fn request(&self, body: &RequestBody) -> Result<RequestView, ClientError> {
        let question = self.question(Method::POST, &["lease-requests"]).json(body).timeout(REQUEST_BOUND);
        self.ask(question).await.map(|OneRequest { request }| request)
    }

    /// One lease request; waits up to `wait`, in whole seconds and at most 60, for it to settle.
    pub async fn lease_request(&self, id: &RequestId, wait: Duration) -> Result<RequestView, ClientError> {
        let wait = Duration::from_secs(wait.min(LONG_POLL_MAX).as_secs());
        let question = self.question(Method::GET, &["lease-requests", id.as_str()]);
        let question = question.query(&[("wait", wait.as_secs())]).timeout(wait + LONG_POLL_SLACK);
        self.ask(question).await.map(|OneRequest { request }| request)
    }

    /// Ends a lease request that waits.
    pub async fn cancel(&self, id: &RequestId) -> Result<(), ClientError> {
        self.done(self.question(Method::DELETE, &["lease-requests", id.as_str()])).await
    }

    /// The active leases that the caller may see.
    pub async fn leases(&self) -> Result<Vec<LeaseView>, ClientError> {
        self.ask(self.question(Method::GET, &["leases"])).await.map(|Leases { leases }| leases)
    }

    /// One active lease.
    pub async fn lease(&self, id: &LeaseId) -> Result<LeaseView, ClientError> {
        self.ask(self.question(Method::GET, &["leases", id.as_str()])).await.map(|OneLease { lease }| lease)
    }

    /// Moves a lease's deadline (SPEC §4).
    pub async fn renew(&self, id: &LeaseId, body: &RenewBody) -> Result<Renewed, ClientError> {
        let question = self.question(Method::POST, &["leases", id.as_str(), "renew"]).json(body);
        self.ask(question).await
    }

    /// Ends a lease; with a fence only if it is still that grant.
    pub async fn release(&self, id: &LeaseId, fence: Option<Fence>) -> Result<Released, ClientError> {
        let question = self.question(Method::DELETE, &["leases", id.as_str()]);
        self.ask(match fence {
            Some(Fence(fence)) => question.query(&[("fence", fence)]),
            None => question,
        })
        .await
    }

    /// The resources that match, all of them without a selector.
    pub async fn resources(&self, select: Option<&Selector>) -> Result<Vec<ResourceView>, ClientError> {
        let question = self.question(Method::GET, &["resources"]);
        let question = match select {
            Some(select) => question.query(&[("select", select.to_string())]),
            None => question,
        };
        self.ask(question).await.map(|Resources { resources }| resources)
    }

    /// One resource.
    pub async fn resource(&self, address: &ResourceAddress) -> Result<ResourceView, ClientError> {
        let question = self.question(Method::GET, &["resources", &address.to_string()]);
        self.ask(question).await.map(|OneResource { resource }| resource)
    }

    /// Takes a resource out: what is leased stays so, nothing new is granted.
    pub async fn drain(&self, resource: &ResourceAddress) -> Result<ResourceView, ClientError> {
        let question = self.question(Method::POST, &["resources", &resource.to_string(), "drain"]);
        self.ask(question).await.map(|OneResource { resource }| resource)
    }

    /// Brings a resource back.
    pub async fn undrain(&self, resource: &ResourceAddress) -> Result<ResourceView, ClientError> {
        let question = self.question(Method::DELETE, &["resources", &resource.to_string(), "drain"]);
        self.ask(question).await.map(|OneResource { resource }| resource)
    }

    /// Brings a device in quarantine back: it is as it should be.
    pub async fn clear(&self, resource: &ResourceAddress) -> Result<ResourceView, ClientError> {
        let question = self.question(Method::POST, &["resources", &resource.to_string(), "clear"]);
        self.ask(question).await.map(|OneResource { resource }| resource)
    }

    /// Up to `limit` events after `after`, of one kind only if one is given; 1 to 1 000.
    pub async fn events(&self, after: u64, limit: usize, event: Option<EventKind>) -> Result<Events, ClientError> {
        let mut query = vec![("after", after.to_string()), ("limit", limit.to_string())];
        query.extend(event.map(|kind| ("event", kind.as_str().to_owned())));
        self.ask(self.question(Method::GET, &["events"]).query(&query)).await
    }

    /// Counts, for people.
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.ask(self.question(Method::GET, &["status"])).await
    }

    /// Whether the node admits requests, and why not. "Not ready" is an answer here, no error.
    pub async fn ready(&self) -> Result<Readiness, ClientError> {
        let answer = self.exchange(self.question(Method::GET, &["readyz"])).await?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE
            && let Ok(readiness) = serde_json::from_slice(&answer.body)
        {
            return Ok(readiness);
        }
        self.judge(answer)
    }

    /// Makes a token; the answer is the only one that holds its secret.
    pub async fn create_token(&self, body: &TokenBody) -> Result<TokenCreated, ClientError> {
        self.ask(self.question(Method::POST, &["tokens"]).json(body)).await
    }

    /// The tokens of the node, revoked ones too.
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, ClientError> {
        self.ask(self.question(Method::GET, &["tokens"])).await.map(|Tokens { tokens }| tokens)
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &TokenId) -> Result<TokenInfo, ClientError> {
        let question = self.question(Method::DELETE, &["tokens", id.as_str()]);
        self.ask(question).await.map(|OneToken { token }| token)
    }
}
