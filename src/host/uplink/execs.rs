//! The gateway's tools: each on a stream of its own, from its opening until nothing of it runs any more.

use std::convert::Infallible;

use tokio::task::JoinSet;

use super::Uplink;
use super::claims::of_gateway;
use crate::host::exec::ExecDoor;
use crate::host::execs::ExecRequest;
use crate::link::LinkError;
use crate::link::dial::Streams;
use crate::link::exec::ExecArrival;
use crate::model::{Authority, ExecAsk, NodeName, Refusal};
use crate::wire::exec::ExecCall;

impl Uplink {
    /// Serves the tools of this link until it ends; with it they end.
    pub(super) async fn serve_execs(&self, streams: &Streams) -> Result<Infallible, LinkError> {
        // What is dropped with this gives up its line, and so its tool.
        let mut running = JoinSet::new();
        loop {
            // As many come at once as QUIC lets the gateway open.
            let arrived = streams.exec().await?;
            running.spawn(serve(arrived, self.execs.clone(), self.gateway.clone()));
            while running.try_join_next().is_some() {}
        }
    }
}

async fn serve(mut arrived: ExecArrival, door: ExecDoor, gateway: NodeName) {
    let opened = match arrived.hear().await.and_then(|call| request(&gateway, call)) {
        Ok(request) => door.open(request).await,
        Err(refusal) => Err(refusal),
    };
    match opened {
        Ok(tool) => arrived.serve(tool).await,
        Err(refusal) => arrived.refuse(refusal).await,
    }
}

/// What the desk is asked. This gateway speaks for its own requesters only.
fn request(gateway: &NodeName, call: ExecCall) -> Result<ExecRequest, Refusal> {
    let ExecCall { requester, lease, fence, tool, args } = call;
    of_gateway(gateway, &requester)?;
    let authority = Authority::Gateway { name: gateway.clone(), admin: false };
    Ok(ExecRequest { lease, requester, authority, ask: ExecAsk { tool, args, fence } })
}
