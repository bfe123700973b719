//! A node that answers by a script, and writes down what it was asked.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::Notify;

use super::super::interrupt::{Interrupt, Signal};
use super::{Ran, run_until};
use crate::client::fake;

/// What the node says to one question.
pub(super) enum Say {
    /// A status and a body.
    Json(u16, Value),
    /// Part of an answer, and then the connection is gone.
    Broken,
    /// 204.
    Nothing,
    /// A stream of events that ends.
    Stream(String),
    /// Nothing ever; and the command gets its signal.
    Silence,
}

/// A node whose answers follow a script.
pub(super) struct Node {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    signal: Arc<Notify>,
}

impl Node {
    /// `script` is asked with the number of the question, from 0, and the question: `METHOD path`.
    pub(super) async fn new(script: impl Fn(usize, &str) -> Say + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::<String>::new()));
        let signal = Arc::new(Notify::new());
        let (heard, raise, script) = (asked.clone(), signal.clone(), Arc::new(script));
        let answer = move |request: Request| {
            let (heard, raise, script) = (heard.clone(), raise.clone(), script.clone());
            async move {
                let headers = ["last-event-id", "berth-hold-token"];
                let shown = headers.map(|name| fake::text(request.headers(), name)).concat();
                let question = format!("{} {}", request.method(), request.uri());
                let body = axum::body::to_bytes(request.into_body(), 4096).await.unwrap();
                let number = {
                    let mut heard = heard.lock().unwrap();
                    heard.push(format!("{question} {}{shown}", String::from_utf8_lossy(&body)).trim().to_owned());
                    heard.len() - 1
                };
                match script(number, &question) {
                    Say::Json(status, body) => fake::json(status, &body),
                    Say::Broken => broken(),
                    Say::Nothing => axum::http::StatusCode::NO_CONTENT.into_response(),
                    Say::Stream(text) => ([("content-type", "text/event-stream")], text).into_response(),
                    Say::Silence => {
                        raise.notify_one();
                        std::future::pending().await
                    }
                }
            }
        };
        let url = fake::url_of(Router::new().fallback(any(answer))).await;
        Self { url, asked, signal }
    }

    /// Runs a command; Ctrl-C comes when the node falls silent.
    pub(super) async fn run(&self, line: &[&str]) -> Ran {
        let signal = self.signal.clone();
        let coming = async move { signal.notified().await }.map(|()| Signal::Interrupt);
        run_until(&self.url, line, Interrupt::when(coming)).await
    }

    /// What it was asked: `METHOD path body`, and the number after which a stream goes on or the token of a hold.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The body of a question.
    pub(super) fn body(&self, number: usize) -> Value {
        let asked = self.asked();
        serde_json::from_str(asked[number].splitn(3, ' ').nth(2).unwrap()).unwrap()
    }
}

fn broken() -> Response {
    let cut = futures_util::stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("cut")) });
    Body::from_stream(cut).into_response()
}
