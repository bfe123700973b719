//! The calendars of a worker: its desk has them.

use async_trait::async_trait;

use super::Calendars;
use super::views::DoctorView;
use crate::host::message::{DeskMessage, Findings};
use crate::host::unknown_resource;
use crate::model::{Asker, Caller, NodeName, Refusal, Requester, ResourceAddress, SubName};
use crate::service::HostService;
use crate::wire::calendar::{CalendarAnswer, CalendarCall};

#[async_trait]
impl Calendars for HostService {
    fn asker(&self, caller: &Caller, sub: Option<SubName>) -> Asker {
        Asker { requester: Requester::local(caller.principal.clone(), sub), role: caller.role }
    }

    async fn calendar(&self, worker: Option<NodeName>, call: CalendarCall) -> Result<CalendarAnswer, Refusal> {
        if let Some(other) = worker.filter(|worker| *worker != self.name)
            && let Some(id) = call.ask.resource()
        {
            return Err(unknown_resource(&ResourceAddress { worker: Some(other), id: id.clone() }));
        }
        self.change(|reply| DeskMessage::Calendar(Box::new(call), reply)).await
    }

    async fn doctor(&self, caller: &Caller) -> Result<DoctorView, Refusal> {
        caller.must_be_admin("have the database looked at")?;
        let Findings { violations, holds_paused } = self.read(DeskMessage::Check).await??;
        Ok(DoctorView { ok: violations.is_empty(), holds_paused, violations })
    }
}
