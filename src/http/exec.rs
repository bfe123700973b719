//! A tool at a device, asked for in one request (SPEC §7): what it reads comes with the body, what it writes is the answer,
//! one JSON object a line (NDJSON), as it comes.
//!
//! `{"stream":"stdout","data":"<base64>"}` and the same with `stderr`; last `{"exit":n}`, or `{"error":{"code","message"}}`
//! where the tool was ended. An answer without its last line was cut off. What is refused before the tool runs is an error
//! like any other.
//!
//! A client that reads slowly makes the tool wait, and one that goes ends it.

use axum::Extension;
use axum::body::Body as Content;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};

use super::answer::Answer;
use super::body::Body;
use super::path::Id;
use super::router::Front;
use super::stream::Opening;
use crate::link::exec::ToolLine;
use crate::model::{Caller, ExecAsk, LeaseId, Refusal};
use crate::service::exec::ExecOnceBody;
use crate::wire::exec::{FromTool, ToTool};

/// `POST /v1/leases/{id}/exec`.
pub(super) async fn once(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(lease): Id<LeaseId>,
    opening: Opening,
    Body(body): Body<ExecOnceBody>,
) -> Answer {
    let ExecOnceBody { tool, args, fence, stdin } = body;
    let input = stdin.map(|text| STANDARD.decode(text)).transpose();
    let input = input.map_err(|error| Refusal::bad_field("stdin", format!("is not base64 with padding: {error}")))?;
    let line = front.app.coordinator.exec(&caller, &lease, ExecAsk { tool, args, fence }).await?;
    // The body is smaller than what may be sent unacknowledged. A tool that has ended takes nothing.
    if let Some(input) = input.filter(|input| !input.is_empty()) {
        let _ = line.to.send(ToTool::Stdin(input.into())).await;
    }
    let _ = line.to.send(ToTool::Eof).await;
    let lines = stream::unfold(Some(Reading { line, opening, passed: 0 }), |reading| async move {
        let (text, reading) = reading?.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), reading))
    });
    let mut response = Response::new(Content::from_stream(lines));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Reading {
    line: ToolLine,
    opening: Opening,
    /// Bytes of the last piece, which are on their way to the client once more is asked for.
    passed: usize,
}

impl Reading {
    /// The next line, and what reads those behind it; none behind the last.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        loop {
            if self.passed > 0 {
                let passed = u32::try_from(std::mem::take(&mut self.passed)).unwrap_or(u32::MAX);
                // One that has ended has said so.
                let _ = self.line.to.send(ToTool::Ack(passed)).await;
            }
            let frame = tokio::select! {
                biased;
                refusal = self.opening.over() => FromTool::Failed(refusal),
                frame = self.line.from.recv() => frame?,
            };
            let last = frame.is_last();
            let shown = match &frame {
                FromTool::Stdout(bytes) | FromTool::Stderr(bytes) => {
                    self.passed = bytes.len();
                    let stream = if matches!(frame, FromTool::Stdout(_)) { "stdout" } else { "stderr" };
                    json!({ "stream": stream, "data": STANDARD.encode(bytes) })
                }
                FromTool::Ack(_) => continue,
                FromTool::Exit(code) => json!({ "exit": code }),
                FromTool::Failed(refusal) => failed(refusal),
            };
            return Some((format!("{shown}\n").into(), (!last).then_some(self)));
        }
    }
}

/// `{"error":{…}}`, for a client that has its answer already.
pub(super) fn failed(refusal: &Refusal) -> Value {
    json!({ "error": refusal })
}
