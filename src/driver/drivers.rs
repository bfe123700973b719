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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use tokio::net::TcpListener;

    use super::*;
    use crate::model::{AdbDevice, AdbWhich, DeviceFacts, DeviceIdentity, Driver};

    /// Does everything at once, and keeps what it was.
    #[derive(Debug, Default)]
    struct Programs(Mutex<Vec<HookKind>>);

    #[async_trait]
    impl Hands for Programs {
        async fn run(&self, job: Job, _: CancellationToken) -> Outcome {
            self.0.lock().unwrap().push(job.hook);
            Outcome::Done
        }
    }

    fn drivers() -> (Arc<Programs>, Drivers) {
        let programs = Arc::new(Programs::default());
        (programs.clone(), Drivers { programs })
    }

    fn job(hook: HookKind, kind: DriverKind) -> Job {
        let identity = DeviceIdentity { driver: "adb".to_owned(), serial: "S1".to_owned() };
        Job {
            resource: "a".parse().unwrap(),
            hook,
            driver: Arc::new(Driver { kind, ..Driver::default() }),
            facts: Arc::new(DeviceFacts { identity: Some(identity), ..DeviceFacts::default() }),
            environment: BTreeMap::new(),
        }
    }

    fn device(port: u16) -> DriverKind {
        DriverKind::Adb(AdbDevice { port, which: AdbWhich::Serial("S1".to_owned()) })
    }

    #[tokio::test]
    async fn only_the_health_of_a_device_is_looked_at_without_a_program() {
        let (programs, drivers) = drivers();
        let jobs =
            [(HookKind::Prepare, device(1)), (HookKind::Reset, device(1)), (HookKind::Health, DriverKind::Command)];
        for (hook, kind) in jobs {
            assert_eq!(drivers.run(job(hook, kind), CancellationToken::new()).await, Outcome::Done);
        }
        assert_eq!(*programs.0.lock().unwrap(), [HookKind::Prepare, HookKind::Reset, HookKind::Health]);
    }

    #[tokio::test]
    async fn a_look_at_a_device_ends_when_it_is_told_to() {
        let (programs, drivers) = drivers();
        // It takes connections, and nobody answers.
        let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let stop = CancellationToken::new();
        let looking = drivers.run(job(HookKind::Health, device(silent.local_addr().unwrap().port())), stop.clone());
        let stopping = async {
            let _asked = silent.accept().await.unwrap();
            stop.cancel();
        };
        let (outcome, ()) = tokio::join!(looking, stopping);
        assert_eq!((outcome, programs.0.lock().unwrap().len()), (Outcome::Stopped, 0));
    }

    #[tokio::test]
    async fn a_resource_without_a_device_is_not_well() {
        let (_, drivers) = drivers();
        let mut job = job(HookKind::Health, device(1));
        job.facts = Arc::default();
        let Outcome::Failed(failure) = drivers.run(job, CancellationToken::new()).await else { panic!("it is well") };
        assert_eq!(failure.to_string(), "health found no device: none has been plugged in for this resource");
    }
}
