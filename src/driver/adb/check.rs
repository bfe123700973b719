//! Looks at a device: its state at the server, and whether its shell answers.

use std::time::Duration;

use uuid::Uuid;

use super::serial::Serial;
use super::server::{Server, ServerError};
use super::{DRIVER, listing};
use crate::driver::Job;
use crate::model::{AdbDevice, HookFailure, HookKind};

/// What the look at a device takes at most, unless its health hook has less.
const CHECK_BOUND: Duration = Duration::from_secs(10);

/// Looks at the device of a job once. It takes no longer than the timeout of the health hook, nor than 10 s.
pub(in crate::driver) async fn check(job: &Job, device: &AdbDevice) -> Result<(), HookFailure> {
    let bound = job.driver.health.as_ref().map_or(CHECK_BOUND, |hook| hook.timeout.min(CHECK_BOUND));
    let failed = |why| HookFailure { hook: HookKind::Health, why, output: String::new() };
    let identity = job.facts.identity.as_ref().filter(|identity| identity.driver == DRIVER);
    let serial = identity.and_then(|identity| identity.serial.parse::<Serial>().ok());
    let serial =
        serial.ok_or_else(|| failed("found no device: none has been plugged in for this resource".to_owned()))?;
    look(Server { port: device.port }, &serial, bound).await.map_err(failed)
}

/// The error follows the word `health`.
async fn look(server: Server, serial: &Serial, bound: Duration) -> Result<(), String> {
    let nonce = format!("berth-{}", Uuid::new_v4().simple());
    let work = async {
        let listing = server.list().await.map_err(|error| no_server(server, &error))?;
        // A server that is asked for the state of a device that is offline refuses, in words that are nobody's contract.
        match listing::parse(&listing).get(serial).map(|listed| listed.state.trouble()) {
            Some(None) => {}
            Some(Some(trouble)) => return Err(format!("found that the device {serial} {trouble}")),
            None => return Err(format!("found that the device {serial} is not plugged in")),
        }
        let answer = server.shell(serial, &format!("echo {nonce}"), bound).await;
        let answer = answer.map_err(|error| format!("got no answer from the device {serial}: {error}"))?;
        if answer.trim() == nonce {
            Ok(())
        } else {
            Err(format!("got another answer from the shell of the device {serial} than what it had to repeat"))
        }
    };
    let late = |_| Err(format!("got no answer from the device {serial}: {}", ServerError::Late(bound)));
    tokio::time::timeout(bound, work).await.unwrap_or_else(late)
}

fn no_server(server: Server, error: &ServerError) -> String {
    format!("cannot ask the adb server on port {}: {error}", server.port)
}
