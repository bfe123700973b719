//! Calls with correlation ids on one stream: the asking side.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::LinkError;
use super::stream::{FrameReader, FrameWriter, read, write_raw};
use crate::limits::CALLS_IN_FLIGHT_MAX;
use crate::wire::call::{Answer, AnswerFrame, Call, CallFrame};
use crate::wire::frame::encode;

/// Asks over one link. Calls reach the peer in the order of [`Asker::send`].
#[derive(Debug)]
pub struct Asker {
    next: AtomicU64,
    waiting: Waiting,
    room: Arc<Semaphore>,
    frames: mpsc::Sender<Bytes>,
    ended: CancellationToken,
    tasks: [AbortHandle; 2],
}

/// The call certainly did not reach the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call was not sent")]
pub struct NotSent;

/// Nobody knows whether the call was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link was lost before the answer came")]
pub struct Lost;

/// A call that has been handed to the link.
#[derive(Debug)]
pub struct Pending {
    id: u64,
    waiting: Waiting,
    answer: oneshot::Receiver<AnswerFrame>,
    _room: OwnedSemaphorePermit,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(waiting) = locked(&self.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

/// Who waits for which answer; none once the link is lost.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<AnswerFrame>>>>>;

impl Asker {
    pub(super) fn start(mut writer: FrameWriter, mut reader: FrameReader) -> Self {
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (frames, mut queue) = mpsc::channel::<Bytes>(CALLS_IN_FLIGHT_MAX);
        let ended = CancellationToken::new();
        let (lost, end) = (Arc::clone(&waiting), ended.clone().drop_guard());
        let write = tokio::spawn(async move {
            let _end = end;
            while let Some(frame) = queue.recv().await {
                if write_raw(&mut writer, frame).await.is_err() {
                    break;
                }
            }
            lose_all(&lost);
        });
        let (lost, end) = (Arc::clone(&waiting), ended.clone().drop_guard());
        let read = tokio::spawn(async move {
            let _end = end;
            loop {
                match read::<AnswerFrame>(&mut reader).await {
                    Ok(Some(frame)) => {
                        let waiter = locked(&lost).as_mut().and_then(|waiting| waiting.remove(&frame.id));
                        if let Some(waiter) = waiter {
                            // Nobody may wait any more: the call's bound has passed.
                            let _ = waiter.send(frame);
                        }
                    }
                    Ok(None) => break,
                    Err(LinkError::Frame(error)) => {
                        tracing::warn!(%error, "an answer does not decode; the call stream ends");
                        break;
                    }
                    Err(_) => break,
                }
            }
            lose_all(&lost);
        });
        Self {
            next: AtomicU64::new(1),
            waiting,
            room: Arc::new(Semaphore::new(CALLS_IN_FLIGHT_MAX)),
            frames,
            ended,
            tasks: [write.abort_handle(), read.abort_handle()],
        }
    }

    /// Hands a call to the link.
    ///
    /// # Errors
    /// [`NotSent`] when the link is lost or too many calls are unanswered.
    pub fn send(&self, call: Call) -> Result<Pending, NotSent> {
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| NotSent)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = encode(&CallFrame { id, call }).map_err(|error| {
            tracing::error!(%error, "a call does not fit a frame");
            NotSent
        })?;
        let (waiter, answer) = oneshot::channel();
        locked(&self.waiting).as_mut().ok_or(NotSent)?.insert(id, waiter);
        if self.frames.try_send(frame).is_err() {
            if let Some(waiting) = locked(&self.waiting).as_mut() {
                waiting.remove(&id);
            }
            return Err(NotSent);
        }
        Ok(Pending { id, waiting: Arc::clone(&self.waiting), answer, _room: room })
    }

    /// Resolves when no call can be answered any more: the stream has ended, or broke the protocol.
    pub fn ended(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        lose_all(&self.waiting);
    }
}

impl Pending {
    /// Waits for the answer, at most for `bound`: the answer, and the number of the delta with its effect.
    pub async fn answer(self, bound: Duration) -> Result<(Answer, u64), Lost> {
        let mut pending = self;
        let frame = timeout(bound, &mut pending.answer).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
        Ok((frame.answer, frame.number))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lose_all(waiting: &Waiting) {
    locked(waiting).take();
}
