//! Looks at a device: its state at the server, and whether its shell answers.

use std::time::Duration;

use uuid::Uuid;

use super::DRIVER;
use super::serial::Serial;
use super::server::{Server, ServerError};
use super::state::AdbState;
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
        let state = server.state(serial).await.map_err(|error| unanswered(server, serial, &error))?;
        if let Some(trouble) = AdbState::parse(&state).trouble() {
            return Err(format!("found that the device {serial} {trouble}"));
        }
        let answer = server.shell(serial, &format!("echo {nonce}"), bound).await;
        let answer = answer.map_err(|error| unanswered(server, serial, &error))?;
        if answer.trim() == nonce {
            Ok(())
        } else {
            Err(format!("got another answer from the shell of the device {serial} than what it had to repeat"))
        }
    };
    let late = || Err(format!("got no answer from the device {serial} within {}s", bound.as_secs_f64()));
    tokio::time::timeout(bound, work).await.unwrap_or_else(|_| late())
}

fn unanswered(server: Server, serial: &Serial, error: &ServerError) -> String {
    match error {
        ServerError::Nobody => format!("found no adb server on port {}", server.port),
        ServerError::Refused(words) => format!("was refused by the adb server: {words}"),
        error => format!("got no answer from the device {serial}: {error}"),
    }
}
