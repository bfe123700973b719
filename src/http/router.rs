//! The routes, and what every request passes on its way to one.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use super::answer::Problem;
use super::{
    App, bookings, config, door, events, exec, exec_socket, holds, lease_events, leases, node, query, request_events,
    requests, resources, tokens, waiting_room, workers,
};
use crate::model::{Code, Refusal};

/// What the handlers share.
#[derive(Clone)]
pub(super) struct Front {
    pub app: App,
    /// Ends the long polls and the streams when the node stops.
    pub stopping: CancellationToken,
    permits: Arc<Semaphore>,
}

impl Front {
    /// At most `requests_max` are served at once.
    pub fn new(app: App, stopping: CancellationToken, requests_max: usize) -> Self {
        Self { app, stopping, permits: Arc::new(Semaphore::new(requests_max)) }
    }
}

/// A place among the requests that are served at once. A stream takes it along.
#[derive(Clone)]
pub(super) struct Permit {
    _held: Arc<OwnedSemaphorePermit>,
}

/// Everything under `/v1`.
pub(super) fn router(front: Front) -> Router {
    Router::new()
        .route("/v1/resources", get(resources::list))
        .route("/v1/resources/{id}", get(resources::show))
        .route("/v1/resources/{id}/leases", post(leases::acquire))
        .route("/v1/resources/{id}/waiting-room", get(waiting_room::show))
        .route("/v1/resources/{id}/waiting-room/me", delete(waiting_room::leave))
        .route("/v1/resources/{id}/drain", post(resources::drain).delete(resources::undrain))
        .route("/v1/resources/{id}/clear", post(resources::clear))
        .route("/v1/resources/{id}/bookings", get(bookings::of_resource).post(bookings::create))
        .route("/v1/resources/{id}/holds", get(holds::list).post(holds::create))
        .route("/v1/resources/{id}/holds/pause", post(holds::pause))
        .route("/v1/resources/{id}/holds/resume", post(holds::resume))
        .route("/v1/bookings", get(bookings::list))
        .route("/v1/bookings/{id}", get(bookings::show).patch(bookings::reschedule).delete(bookings::cancel))
        .route("/v1/holds/pause", post(holds::pause_all))
        .route("/v1/holds/resume", post(holds::resume_all))
        .route("/v1/holds/{id}", get(holds::show).delete(holds::release))
        .route("/v1/holds/{id}/confirm", post(holds::confirm))
        .route("/v1/lease-requests", get(requests::list).post(requests::ask))
        .route("/v1/lease-requests/{id}", get(requests::show).delete(requests::cancel))
        .route("/v1/lease-requests/{id}/events", get(request_events::stream))
        .route("/v1/leases", get(leases::list))
        .route("/v1/leases/{id}", get(leases::show).delete(leases::release))
        .route("/v1/leases/{id}/renew", post(leases::renew))
        .route("/v1/leases/{id}/events", get(lease_events::stream))
        .route("/v1/leases/{id}/exec", get(exec_socket::open).post(exec::once))
        .route("/v1/events", get(events::list))
        .route("/v1/events/stream", get(events::stream))
        .route("/v1/workers", get(workers::list))
        .route("/v1/workers/{id}", delete(workers::remove))
        .route("/v1/workers/{id}/drain", post(workers::drain).delete(workers::undrain))
        .route("/v1/workers/{id}/invitation", post(workers::invite))
        .route("/v1/config/reload", post(config::reload))
        .route("/v1/status", get(node::status))
        .route("/v1/doctor", get(node::doctor))
        .route("/v1/healthz", get(node::healthz))
        .route("/v1/readyz", get(node::readyz))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        // The last layer is the first that a request meets.
        .layer(from_fn(query::check))
        .layer(from_fn_with_state(front.clone(), door::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(front.clone(), bound))
        .layer(from_fn(log))
        .with_state(front)
}

async fn no_route(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(120).collect();
    Refusal::new(Code::NotFound, format!("no route {path}; the API is under /v1")).into()
}

async fn no_method(request: Request) -> Problem {
    let message = format!("this route does not take {}; the header Allow has what it takes", request.method());
    Refusal::new(Code::MethodNotAllowed, message).into()
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    // The panic hook has logged what and where.
    Problem(Refusal::internal("a handler of this request failed")).into_response()
}

async fn bound(State(front): State<Front>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let Ok(permit) = Arc::clone(&front.permits).try_acquire_owned() else {
        let message = "this node serves as many requests as it can; ask again in a moment";
        return Err(Refusal::new(Code::QueueFull, message).retry_after(Duration::from_secs(1)).into());
    };
    let permit = Permit { _held: Arc::new(permit) };
    request.extensions_mut().insert(permit.clone());
    let response = next.run(request).await;
    drop(permit);
    Ok(response)
}

async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    response
}
