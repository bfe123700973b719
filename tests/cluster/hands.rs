//! Hands that do what a test says: each job on a device waits until the test lets it end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use berth::driver::{Hands, Job, Outcome};
use berth::model::HookFailure;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How long a test waits for a job, of the paused clock.
const BOUND: Duration = Duration::from_secs(120);

/// A job that runs.
pub struct Begun {
    pub job: Job,
    pub stop: CancellationToken,
    end: oneshot::Sender<Outcome>,
}

impl Begun {
    /// What it is: `prepare phone-1`.
    pub fn name(&self) -> String {
        format!("{} {}", self.job.hook, self.job.resource)
    }

    pub fn succeeds(self) {
        self.ends(Outcome::Done);
    }

    pub fn fails(self) {
        let hook = self.job.hook;
        let failure = HookFailure { hook, why: "exited with 3".to_owned(), output: "no such device\n".to_owned() };
        self.ends(Outcome::Failed(failure));
    }

    /// Ends as one does that is told to stop.
    pub async fn stops(self) {
        tokio::time::timeout(BOUND, self.stop.cancelled()).await.expect("it is told to stop");
        self.ends(Outcome::Stopped);
    }

    fn ends(self, outcome: Outcome) {
        self.end.send(outcome).expect("the node waits for it");
    }
}

/// The hands of a lab's nodes.
#[derive(Debug)]
struct Scripted(mpsc::Sender<Begun>);

/// The test's end of them.
pub struct Jobs(Mutex<mpsc::Receiver<Begun>>);

pub fn scripted() -> (Arc<dyn Hands>, Jobs) {
    let (begun, jobs) = mpsc::channel(1_024);
    (Arc::new(Scripted(begun)), Jobs(Mutex::new(jobs)))
}

impl Jobs {
    /// The next job.
    pub async fn next(&self) -> Begun {
        tokio::time::timeout(BOUND, async { self.0.lock().await.recv().await }).await.expect("a job in time").unwrap()
    }

    /// The next job, which is this one: `prepare phone-1`.
    pub async fn is(&self, name: &str) -> Begun {
        let begun = self.next().await;
        assert_eq!(begun.name(), name);
        begun
    }

    /// True when no job begins for so long.
    pub async fn none_for(&self, long: Duration) -> bool {
        tokio::time::timeout(long, async { self.0.lock().await.recv().await }).await.is_err()
    }
}

#[async_trait]
impl Hands for Scripted {
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome {
        let (end, ended) = oneshot::channel();
        // A test that is over looks at nothing any more.
        let _ = self.0.send(Begun { job, stop, end }).await;
        ended.await.unwrap_or(Outcome::Stopped)
    }
}
