//! Hands that do what a test says: each job waits until the test lets it end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    jobs: tokio::sync::Mutex<mpsc::Receiver<Begun>>,
    running: Mutex<HashMap<String, u32>>,
}

impl Scripted {
    pub(super) fn new() -> Arc<Self> {
        let (begun, jobs) = mpsc::channel(1_024);
        Arc::new(Self { begun, jobs: tokio::sync::Mutex::new(jobs), running: Mutex::default() })
    }

    /// The next job that begins, within ten minutes of the node's clock.
    pub(super) async fn next(&self) -> Begun {
        let next = async { self.jobs.lock().await.recv().await.expect("the hands are there") };
        tokio::time::timeout(Duration::from_secs(600), next).await.expect("a job begins")
    }

    /// The next job, if one has begun.
    pub(super) async fn begun(&self) -> Option<Begun> {
        self.jobs.lock().await.try_recv().ok()
    }
}

/// Counts a job of a resource for as long as it is there; the node may be gone before its end.
struct Counted<'a>(&'a Mutex<HashMap<String, u32>>, String);

impl<'a> Counted<'a> {
    fn new(running: &'a Mutex<HashMap<String, u32>>, resource: String) -> Self {
        let mut all = running.lock().unwrap();
        let count = all.entry(resource.clone()).or_default();
        *count += 1;
        assert_eq!(*count, 1, "one job at a time on {resource}");
        drop(all);
        Self(running, resource)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap().get_mut(&self.1).expect("it was counted") -= 1;
    }
}

#[async_trait]
impl Hands for Scripted {
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome {
        let _counted = Counted::new(&self.running, job.resource.to_string());
        let (end, ended) = oneshot::channel();
        self.begun.send(Begun { job, stop, end }).await.expect("the test is there");
        ended.await.unwrap_or(Outcome::Stopped)
    }
}
