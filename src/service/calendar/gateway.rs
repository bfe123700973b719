//! The calendars of a lab: each worker has its own.

use async_trait::async_trait;

use super::Calendars;
use super::views::DoctorView;
use crate::model::{Asker, Caller, Code, NodeName, Refusal, Requester, SubName};
use crate::service::GatewayService;
use crate::wire::calendar::{CalendarAnswer, CalendarCall};

#[async_trait]
impl Calendars for GatewayService {
    fn asker(&self, caller: &Caller, sub: Option<SubName>) -> Asker {
        let requester = Requester::local(caller.principal.clone(), sub).through(&self.name);
        Asker { requester, role: caller.role }
    }

    async fn calendar(&self, _: Option<NodeName>, _: CalendarCall) -> Result<CalendarAnswer, Refusal> {
        Err(Refusal::new(Code::UnsupportedOnGateway, "ask the worker that has the resource"))
    }

    async fn doctor(&self, caller: &Caller) -> Result<DoctorView, Refusal> {
        caller.must_be_admin("have a database looked at")?;
        let message = "a gateway has no calendar of its own to look at; ask the worker that has the resource";
        Err(Refusal::new(Code::UnsupportedOnGateway, message))
    }
}
