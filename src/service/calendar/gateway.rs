//! The calendars of a lab: each worker has those of its resources.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::iter;

use super::Calendars;
use super::merge::Merged;
use super::views::DoctorView;
use crate::gateway::message::{FrontMessage, Presence};
use crate::limits::CALENDARS_ASKED_MAX;
use crate::model::{Asker, Caller, Code, NodeName, Refusal, Requester, SubName};
use crate::service::{ACTOR_BOUND, GatewayService, ask_actor, unanswered};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall};

#[async_trait]
impl Calendars for GatewayService {
    fn asker(&self, caller: &Caller, sub: Option<SubName>) -> Asker {
        let requester = Requester::local(caller.principal.clone(), sub).through(&self.name);
        Asker { requester, role: caller.role }
    }

    async fn calendar(&self, worker: Option<NodeName>, call: CalendarCall) -> Result<CalendarAnswer, Refusal> {
        match &call.ask {
            CalendarAsk::PauseHolds { resource: None, paused } => self.pause_all(*paused).await,
            _ => self.ask(|reply| FrontMessage::Calendar { worker, call: Box::new(call), reply }).await?,
        }
    }

    async fn bookings_of_all(&self, call: CalendarCall) -> Result<(CalendarAnswer, Vec<NodeName>), Refusal> {
        let merged = tokio::time::timeout(ACTOR_BOUND, self.merged(call)).await;
        merged.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn doctor(&self, caller: &Caller) -> Result<DoctorView, Refusal> {
        caller.must_be_admin("have a database looked at")?;
        let message = "a gateway has no calendar of its own to look at; ask the worker that has the resource";
        Err(Refusal::new(Code::UnsupportedOnGateway, message))
    }
}

impl GatewayService {
    /// One page over every worker that can be asked. The page is whole or refused; of workers that are away it has nothing,
    /// and they are named.
    async fn merged(&self, call: CalendarCall) -> Result<(CalendarAnswer, Vec<NodeName>), Refusal> {
        let CalendarAsk::Bookings { filter, limit, .. } = &call.ask else {
            return Err(Refusal::internal("the call is for no list of bookings"));
        };
        let mut merged = Merged::new(*limit, filter.after.clone());
        let Presence { here, away } = self.ask(FrontMessage::Presence).await?;
        let asked = here.into_iter().map(|worker| {
            let call = Box::new(call.clone());
            self.ask(|reply| FrontMessage::Calendar { worker: Some(worker), call, reply })
        });
        let mut pages = iter(asked).buffer_unordered(CALENDARS_ASKED_MAX);
        while let Some(page) = pages.next().await {
            match page?? {
                CalendarAnswer::Bookings { bookings, next } => merged.add(bookings, next.is_some()),
                other => return Err(super::does_not_fit(&other)),
            }
        }
        let (bookings, next) = merged.page();
        Ok((CalendarAnswer::Bookings { bookings, next }, away))
    }

    /// Stops new holds on the whole lab, or lets them be made again: first on disk, then at every worker that is here. One
    /// after the other, and also when the caller does not wait for it.
    async fn pause_all(&self, paused: bool) -> Result<CalendarAnswer, Refusal> {
        let (file, front) = (Arc::clone(&self.holds), self.front.clone());
        let told = tokio::spawn(async move {
            let file = file.lock_owned().await;
            let written = tokio::task::spawn_blocking(move || file.write(paused).map(|()| file)).await;
            match written {
                Ok(Ok(_in_order)) => {
                    let told = ask_actor(&front, ACTOR_BOUND, |reply| FrontMessage::PauseHolds { paused, reply });
                    told.await.ok_or_else(unanswered)
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "it cannot be written whether new holds are stopped");
                    Err(Refusal::internal("it could not be stored, and no worker is told"))
                }
                Err(_) => Err(Refusal::internal("it could not be stored, and no worker is told")),
            }
        });
        told.await.unwrap_or_else(|_| Err(unanswered()))?;
        Ok(CalendarAnswer::Paused(paused))
    }
}

fn too_slow() -> Refusal {
    let message = "not every worker has answered in time; ask again, or for the bookings of one resource";
    Refusal::new(Code::WorkerUnreachable, message).retry_after(std::time::Duration::from_secs(1))
}
