//! `berth lease waiting-room` and `berth lease leave`.

use super::lease::until;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::model::ResourceAddress;
use crate::service::views::WaitingRoomView;

pub(super) async fn show(resource: &ResourceAddress, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let room = client.waiting_room(resource).await?;
    if room.waiters.is_empty() {
        output.talk(&format!("nobody waits for {resource}"));
    }
    output.answer(&room, || listed(&room))
}

pub(super) async fn leave(resource: &ResourceAddress, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let left = client.leave(resource).await?;
    output.answer(&left, || match left.left {
        true => format!("left the waiting room of {resource}\n"),
        false => format!("not in the waiting room of {resource}\n"),
    })
}

fn listed(room: &WaitingRoomView) -> String {
    let rows = room.waiters.iter().map(|waiter| {
        [
            waiter.holder_id.to_string(),
            waiter.mode.as_str().to_owned(),
            f64::from(waiter.priority).to_string(),
            until(waiter.joined_at),
            until(waiter.last_seen),
        ]
    });
    table::list(["HOLDER", "MODE", "PRIORITY", "JOINED", "LAST SEEN"], rows)
}
