//! Everything that is done to devices, by whoever does it.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Hands, Job, Outcome, adb};
use crate::model::{DriverKind, HookKind};

/// Looks at a device in the way of its driver's kind, and has programs do the rest.
#[derive(Debug, Clone)]
pub struct Drivers {
    /// Runs the hooks of the lab file.
    pub programs: Arc<dyn Hands>,
}

#[async_trait]
impl Hands for Drivers {
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome {
        if let (HookKind::Health, DriverKind::Adb(device)) = (job.hook, &job.driver.kind) {
            // A program has nothing to look at in a device that does not answer.
            let looked = tokio::select! {
                biased;
                () = stop.cancelled() => return Outcome::Stopped,
                looked = adb::check(&job, device) => looked,
            };
            if let Err(failure) = looked {
                return Outcome::Failed(failure);
            }
        }
        self.programs.run(job, stop).await
    }
}
