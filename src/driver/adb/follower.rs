//! Follows one adb server: its listings as they come, and the properties of each device once it is up.
//!
//! A server tells when devices come and go, but not always when one falls silent: adb 29 keeps to itself that a device on the
//! network is offline. So it is asked again every two seconds, and one that does not answer then is away.
//!
//! A server that is not there is started, and dialled again with growing pauses, for as long as somebody wants to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::listing::{self, Listed};
use super::pauses::Pauses;
use super::properties::{self, PROPERTIES_COMMAND};
use super::serial::Serial;
use super::server::{Listings, Server, ServerError};
use super::starting::AdbProgram;
use super::view::{Status, View};
use crate::model::DeviceFacts;

/// What a device has to tell its properties in.
const PROPERTIES_BOUND: Duration = Duration::from_secs(5);
/// How long after a listing the next one is asked for.
const LIST_AFTER: Duration = Duration::from_secs(2);
/// Devices of one server whose properties are read at once.
const READERS_MAX: usize = 16;
/// What readers have found and the follower has not seen yet; one more reader waits.
const FOUND_QUEUED_MAX: usize = 16;

/// Follows one server.
#[derive(Debug)]
pub(super) struct Follower {
    /// The server.
    pub server: Server,
    /// Starts it where there is none.
    pub program: AdbProgram,
    /// Which follower of the watcher's this is.
    pub number: u64,
    /// Where each new view goes.
    pub views: mpsc::Sender<Viewed>,
}

/// What a follower sees.
#[derive(Debug)]
pub(super) struct Viewed {
    /// Which follower.
    pub follower: u64,
    /// What it sees now.
    pub view: View,
}

impl Follower {
    /// Follows until the future is dropped, or nobody wants to know any more.
    pub(super) async fn run(self) {
        let mut pauses = Pauses::default();
        let mut said = String::new();
        while !self.views.is_closed() {
            let why = match self.dial().await {
                Ok(mut listings) => {
                    let (error, heard) = self.follow(&mut listings).await;
                    if heard {
                        pauses = Pauses::default();
                    }
                    format!("the adb server on port {} has gone: {error}", self.server.port)
                }
                Err(why) => why,
            };
            // Said once for each reason, not for each dial.
            if why == said {
                tracing::debug!(port = self.server.port, "{why}");
            } else {
                tracing::warn!(port = self.server.port, "{why}");
                said.clone_from(&why);
            }
            self.tell(View::Away(why)).await;
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// Reaches the server, and starts it if nobody listens; else why not.
    async fn dial(&self) -> Result<Listings, String> {
        let port = self.server.port;
        let failed = |error| format!("the adb server on port {port} cannot be followed: {error}");
        match self.server.track().await {
            Err(ServerError::Nobody) => {
                let started = self.program.start_server(port).await;
                started.map_err(|why| format!("no adb server on port {port} and {why}"))?;
                tracing::info!(port, "started an adb server");
                self.server.track().await.map_err(failed)
            }
            other => other.map_err(failed),
        }
    }

    /// Follows one connection to its end; why it ended, and whether there was a listing before.
    async fn follow(&self, listings: &mut Listings) -> (ServerError, bool) {
        let (found, mut finds) = mpsc::channel(FOUND_QUEUED_MAX);
        let mut devices = Devices::new(self.server, found);
        let mut heard = false;
        loop {
            let told = listings.next();
            // An answer that is on its way when a listing is told is older, and not waited for.
            let asked = list_later(self.server);
            tokio::pin!(told, asked);
            let told = loop {
                let news = tokio::select! {
                    biased;
                    told = &mut told => break told,
                    listing = &mut asked => {
                        asked.set(list_later(self.server));
                        match listing {
                            Ok(listing) => devices.listed(listing::parse(&listing)),
                            Err(error) => return (error, heard),
                        }
                    }
                    Some(find) = finds.recv() => devices.found(find),
                };
                if news {
                    self.tell(devices.view()).await;
                }
            };
            let first = !heard;
            heard = true;
            match told {
                Ok(listing) if devices.listed(listing::parse(&listing)) || first => self.tell(devices.view()).await,
                Ok(_) => {}
                Err(error) => return (error, !first),
            }
        }
    }

    async fn tell(&self, view: View) {
        // A watcher that is gone takes its followers with it.
        let _ = self.views.send(Viewed { follower: self.number, view }).await;
    }
}

/// The devices of one connection to a server.
#[derive(Debug)]
struct Devices {
    server: Server,
    known: BTreeMap<Serial, Known>,
    /// The number of the last reading.
    readings: u64,
    reading: Arc<Semaphore>,
    found: mpsc::Sender<Find>,
}

#[derive(Debug)]
struct Known {
    listed: Listed,
    status: Status,
    /// Reads the properties, and is ended with the device.
    reader: Option<(u64, AbortOnDropHandle<()>)>,
}

/// What a reader has found.
#[derive(Debug)]
struct Find {
    serial: Serial,
    reading: u64,
    facts: Result<DeviceFacts, String>,
}

impl Devices {
    fn new(server: Server, found: mpsc::Sender<Find>) -> Self {
        let reading = Arc::new(Semaphore::new(READERS_MAX));
        Self { server, known: BTreeMap::new(), readings: 0, reading, found }
    }

    /// Takes a listing in. A device that comes up, or has been plugged in anew, is read. False when nothing is new.
    fn listed(&mut self, listing: BTreeMap<Serial, Listed>) -> bool {
        let same =
            |(serial, listed): (&Serial, &Listed)| self.known.get(serial).is_some_and(|known| known.listed == *listed);
        if listing.len() == self.known.len() && listing.iter().all(same) {
            return false;
        }
        let mut before = std::mem::take(&mut self.known);
        for (serial, listed) in listing {
            let known = match (before.remove(&serial), listed.state.trouble()) {
                (Some(known), _) if known.listed == listed => known,
                (_, Some(trouble)) => Known { listed, status: Status::Unusable(trouble), reader: None },
                (_, None) => {
                    let reader = Some(self.read(&serial));
                    Known { listed, status: Status::Reading, reader }
                }
            };
            self.known.insert(serial, known);
        }
        true
    }

    /// Reads the properties until it has them.
    fn read(&mut self, serial: &Serial) -> (u64, AbortOnDropHandle<()>) {
        self.readings += 1;
        let (server, found, permits) = (self.server, self.found.clone(), self.reading.clone());
        let (serial, reading) = (serial.clone(), self.readings);
        let work = async move {
            let mut pauses = Pauses::default();
            loop {
                let facts = {
                    let _permit = permits.acquire().await.expect("it is never closed");
                    facts(server, &serial).await
                };
                let done = facts.is_ok();
                let gone = found.send(Find { serial: serial.clone(), reading, facts }).await.is_err();
                if done || gone {
                    return;
                }
                tokio::time::sleep(pauses.next()).await;
            }
        };
        (reading, AbortOnDropHandle::new(tokio::spawn(work)))
    }

    /// Takes in what a reader has found. False when nothing is new.
    fn found(&mut self, find: Find) -> bool {
        let Some(known) = self.known.get_mut(&find.serial) else { return false };
        if known.reader.as_ref().is_none_or(|(reading, _)| *reading != find.reading) {
            return false;
        }
        let status = match find.facts {
            Ok(facts) => Status::Ready(Arc::new(facts)),
            Err(why) => Status::Unusable(why),
        };
        std::mem::replace(&mut known.status, status.clone()) != status
    }

    fn view(&self) -> View {
        View::Devices(self.known.iter().map(|(serial, known)| (serial.clone(), known.status.clone())).collect())
    }
}

/// Asks for a listing when the one before is two seconds old.
async fn list_later(server: Server) -> Result<String, ServerError> {
    tokio::time::sleep(LIST_AFTER).await;
    server.list().await
}

/// Reads the properties of a device once. The error is the end of a sentence that begins with the device.
async fn facts(server: Server, serial: &Serial) -> Result<DeviceFacts, String> {
    match server.shell(serial, PROPERTIES_COMMAND, PROPERTIES_BOUND).await {
        Ok(answer) => properties::facts(server.port, serial, &answer)
            .ok_or_else(|| "does not say what it is: look at `adb shell getprop`".to_owned()),
        Err(error) => Err(format!("does not say what it is ({error}): unplug it and plug it in again")),
    }
}
