//! Hooks: programs that prepare, reset and check a device (SPEC §7).

use std::io;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::guard::{Guard, Guarded, Program};
use super::output::Output;
use super::{Ended, Hands, Job, Outcome};
use crate::limits::HOOKS_AT_ONCE_MAX;
use crate::model::span::written;
use crate::model::{Hook, HookFailure};

/// How long the output of a hook that has ended may stay open. Somebody out of reach holds it then; what is there was read.
const REST_BOUND: Duration = Duration::from_secs(1);

/// Runs hooks, each under a [`Guard`], at most [`HOOKS_AT_ONCE_MAX`] at once; one more waits for its turn, and its timeout does
/// not run meanwhile.
///
/// A hook reads nothing. Whatever it leaves running is killed when it ends, in whatever session that is: a daemon that is to
/// stay, such as an adb server, is started by the system and not by a hook.
#[derive(Debug)]
pub struct Programs {
    guard: Guard,
    turns: Semaphore,
}

/// How the run of a hook came to its end.
enum Cause {
    Itself(Ended),
    Timeout,
    Stop,
}

impl Programs {
    /// With this guard.
    pub fn new(guard: Guard) -> Self {
        Self { guard, turns: Semaphore::new(HOOKS_AT_ONCE_MAX) }
    }

    fn start(&self, hook: &Hook, job: &Job) -> io::Result<(Guarded, Output)> {
        let mut environment = job.environment.clone();
        environment.extend(job.facts.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
        let program =
            Program { argv: &hook.argv, environment: &environment, directory: job.driver.directory.as_deref() };
        // One pipe for both streams, so that their order is kept.
        let (read, write) = io::pipe()?;
        let output = Output::new(pipe::Receiver::from_owned_fd(read.into())?);
        let guarded = self.guard.start(program, None, Stdio::from(write.try_clone()?), Stdio::from(write))?;
        Ok((guarded, output))
    }
}

#[async_trait]
impl Hands for Programs {
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome {
        let Some(hook) = job.driver.hook(job.hook) else { return Outcome::Done };
        let failed = |why: String, output: String| Outcome::Failed(HookFailure { hook: job.hook, why, output });
        let turn = tokio::select! {
            biased;
            () = stop.cancelled() => return Outcome::Stopped,
            turn = self.turns.acquire() => turn.expect("the turns are never closed"),
        };
        let (mut guarded, mut output) = match self.start(hook, &job) {
            Ok(started) => started,
            Err(error) => {
                return failed(Ended::NotStarted(format!("no guard for it: {error}")).to_string(), String::new());
            }
        };
        let cause = tokio::select! {
            biased;
            ended = guarded.wait() => Cause::Itself(ended),
            () = stop.cancelled() => Cause::Stop,
            () = tokio::time::sleep(hook.timeout) => Cause::Timeout,
            () = read_for_ever(&mut output) => unreachable!("it has no end"),
        };
        guarded.kill();
        let ended = guarded.wait().await;
        let _ = timeout(REST_BOUND, output.read_on()).await;
        drop(turn);
        match (cause, ended) {
            (Cause::Itself(Ended::Exited(0)), _) => Outcome::Done,
            (Cause::Itself(ended), _) => failed(ended.to_string(), output.end()),
            (Cause::Timeout, Ended::Failed(why)) => {
                failed(format!("took longer than {}, and {why}", written(hook.timeout)), output.end())
            }
            (Cause::Timeout, _) => {
                failed(format!("took longer than {} and was killed", written(hook.timeout)), output.end())
            }
            // Something of it may still touch the device.
            (Cause::Stop, Ended::Failed(why)) => failed(format!("was told to stop, and {why}"), output.end()),
            (Cause::Stop, _) => Outcome::Stopped,
        }
    }
}

/// A hook may close its output long before it ends.
async fn read_for_ever(output: &mut Output) {
    output.read_on().await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::model::{Driver, HookKind};

    #[tokio::test]
    async fn a_hook_that_waits_for_its_turn_can_be_stopped() {
        let programs = Programs { guard: Guard::new("/no/such/berth"), turns: Semaphore::new(0) };
        let hook = Hook { argv: vec!["true".to_owned()], timeout: Duration::from_secs(1) };
        let driver = Arc::new(Driver { reset: Some(hook), ..Driver::default() });
        let resource = "pixel-a".parse().unwrap();
        let job = Job { resource, hook: HookKind::Reset, driver, facts: Arc::default(), environment: BTreeMap::new() };
        let stop = CancellationToken::new();
        let ran = async { tokio::join!(programs.run(job, stop.clone()), async { stop.cancel() }).0 };
        assert_eq!(timeout(Duration::from_secs(20), ran).await, Ok(Outcome::Stopped));
    }
}
