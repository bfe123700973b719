//! Who waits for a request, and what each of them hears.

use ractor::RpcReplyPort;

use super::desk::{DeskState, Watcher};
use super::message::{Asked, RequestNow, Said, Until};
use crate::admission::RequestState;
use crate::admission::cancel::unknown_request;
use crate::limits::WATCHERS_MAX;
use crate::model::{Refusal, RequestId};

impl DeskState {
    pub(super) fn add_watcher(&mut self, id: &RequestId, watcher: Watcher) {
        let watchers = self.watchers.entry(id.clone()).or_default();
        watchers.retain(|watcher| !watcher.has_gone());
        if watchers.len() < WATCHERS_MAX {
            watchers.push(watcher);
        }
        // One more than there may be is dropped unanswered: its caller looks at the request as it then is.
    }

    /// Answers when there is what is waited for, at once if there is.
    pub(super) fn watch(&mut self, id: &RequestId, until: Until, reply: RpcReplyPort<Option<RequestNow>>) {
        self.asked_about(id);
        let is_open = self.requests.get(id).is_some_and(|request| request.state == RequestState::Open);
        let is_placed = self.open.get(id).is_none_or(|open| open.waits());
        if is_open && !(until == Until::FirstAnswer && is_placed) {
            self.add_watcher(id, Watcher::Reader(until, reply));
        } else {
            let _ = reply.send(self.request_now(id));
        }
    }

    /// A request is known to wait: whoever wanted to hear that much, hears it.
    pub(super) fn tell_first_answer(&mut self, id: &RequestId) {
        let mut staying = Vec::new();
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            match watcher {
                Watcher::Caller(reply) => self.say(reply, Ok(Asked::Open(id.clone()))),
                Watcher::Gateway(reply) => {
                    let place = self.place_of(id).ok_or_else(|| Refusal::internal("only a request by name waits here"));
                    self.say(reply, place.map(Asked::Pending));
                }
                Watcher::Looker(reply) => self.say(reply, self.place_of(id).ok_or_else(|| unknown_request(id))),
                Watcher::Reader(Until::FirstAnswer, reply) => drop(reply.send(self.request_now(id))),
                watcher => staying.push(watcher),
            }
        }
        if !staying.is_empty() {
            self.watchers.insert(id.clone(), staying);
        }
    }

    /// Tells everybody who waits for a request how it ended.
    pub(super) fn tell_watchers(&mut self, id: &RequestId, result: &Result<Asked, Refusal>) {
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            match watcher {
                Watcher::Caller(reply) | Watcher::Gateway(reply) => self.say(reply, result.clone()),
                Watcher::Settler(reply) => {
                    let grant = if let Ok(Asked::Granted(grant)) = result { Some(grant.clone()) } else { None };
                    self.say(reply, Ok(grant));
                }
                // It does not wait, or waits no more.
                Watcher::Looker(reply) => self.say(reply, Err(unknown_request(id))),
                Watcher::Reader(_, reply) => drop(reply.send(self.request_now(id))),
            }
        }
    }

    /// Answers, with the number of the last change. A caller that has gone finds the answer under its key.
    pub(super) fn say<T: ractor::Message>(&self, reply: RpcReplyPort<Said<T>>, result: Result<T, Refusal>) {
        let _ = reply.send(Said { result, number: self.reporter.number() });
    }
}
