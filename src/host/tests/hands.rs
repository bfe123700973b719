//! Hands that do what a test says: each job waits until the test lets it end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::driver::{Hands, Job, Outcome};
use crate::model::{HookFailure, HookKind};

/// A job that runs.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) job: Job,
    pub(super) stop: CancellationToken,
    end: oneshot::Sender<Outcome>,
}

impl Begun {
    /// What it is: `prepare board`.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.job.hook, self.job.resource)
    }

    /// A variable of its environment.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.job.environment.get(name).map(String::as_str)
    }

    pub(super) fn succeeds(self) {
        self.ends(Outcome::Done);
    }

    pub(super) fn fails(self) {
        let hook = self.job.hook;
        self.ends(Outcome::Failed(failure(hook)));
    }

    /// Ends as one does that was told to stop.
    pub(super) async fn stops(self) {
        self.stop.cancelled().await;
        self.ends(Outcome::Stopped);
    }

    fn ends(self, outcome: Outcome) {
        self.end.send(outcome).expect("the node waits for it");
    }
}

pub(super) fn failure(hook: HookKind) -> HookFailure {
    HookFailure { hook, why: "exited with 3".to_owned(), output: "no such device\n".to_owned() }
}

/// The hands of a node, and the test's end of them.
#[derive(Debug)]
pub(super) struct Scripted {
    begun: mpsc::Sender<Begun>,
    running: Mutex<HashMap<String, u32>>,
}

pub(super) fn scripted() -> (Arc<Scripted>, mpsc::Receiver<Begun>) {
    let (begun, jobs) = mpsc::channel(1_024);
    (Arc::new(Scripted { begun, running: Mutex::default() }), jobs)
}

#[async_trait]
impl Hands for Scripted {
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome {
        let resource = job.resource.to_string();
        let beside = |by: i64| {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(resource.clone()).or_default();
            *count = count.checked_add_signed(by as i32).unwrap();
            *count
        };
        assert_eq!(beside(1), 1, "one job at a time on {resource}");
        let (end, ended) = oneshot::channel();
        // A test that does not look at jobs has none.
        self.begun.send(Begun { job, stop, end }).await.expect("the test looks at its jobs");
        let outcome = ended.await.unwrap_or(Outcome::Stopped);
        beside(-1);
        outcome
    }
}
