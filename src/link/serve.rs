//! Calls with correlation ids on one stream: the answering side.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::LinkError;
use super::stream::{FrameReader, FrameWriter, read_raw, write};
use crate::limits::CALLS_IN_FLIGHT_MAX;
use crate::model::{Code, Refusal};
use crate::wire::call::{Answer, AnswerFrame, Call, CallFrame, CallFrameId};
use crate::wire::frame::decode;

/// Serves the calls of one link until it ends. `begin` is called with one call after another, in their order, must
/// not block, and returns the future of the answer and its number; none when nobody knows what came of the call.
pub async fn serve<F>(
    mut writer: FrameWriter,
    mut reader: FrameReader,
    mut begin: impl FnMut(Call) -> F,
) -> Result<(), LinkError>
where
    F: Future<Output = Option<(Answer, u64)>> + Send + 'static,
{
    let (answers, mut queue) = mpsc::channel::<AnswerFrame>(CALLS_IN_FLIGHT_MAX);
    let room = Arc::new(Semaphore::new(CALLS_IN_FLIGHT_MAX));
    // Both end with this function: answers to a link that is gone have no reader.
    let mut running = JoinSet::new();
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        while let Some(frame) = queue.recv().await {
            write(&mut writer, &frame).await?;
        }
        Ok(())
    });
    loop {
        let payload = tokio::select! {
            payload = read_raw(&mut reader) => match payload? {
                Some(payload) => payload,
                None => return Ok(()),
            },
            // Without a way back for answers the stream is of no use.
            Some(written) = writing.join_next() => {
                return written.unwrap_or_else(|_| Err(LinkError::Protocol("the answers' writer died".to_owned())));
            }
        };
        let CallFrameId { id } = decode(&payload)?;
        let room = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        let answers = answers.clone();
        match decode::<CallFrame>(&payload) {
            Ok(CallFrame { call, .. }) => {
                let answer = begin(call);
                running.spawn(async move {
                    if let Some((answer, number)) = answer.await {
                        let _ = answers.send(AnswerFrame { id, number, answer }).await;
                    }
                    drop(room);
                });
            }
            Err(error) => {
                let refusal = Refusal::new(Code::BadRequest, format!("unknown call: {error}"));
                let _ = answers.send(AnswerFrame { id, number: 0, answer: Answer::Refused(refusal) }).await;
            }
        }
        while running.try_join_next().is_some() {}
    }
}
