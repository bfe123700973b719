//! Starting a gateway.

use std::sync::Arc;

use futures_util::FutureExt;

use super::running::{Core, Link, first, registered};
use super::worker::dialled;
use super::{Ended, Prepared, Reloader, Running, StartError, Surroundings};
use crate::admission::LiveRules;
use crate::admission::ticket::TicketKey;
use crate::config::Lab;
use crate::gateway::calendar::pause::PauseFile;
use crate::gateway::front::FrontArguments;
use crate::gateway::given_up::GivenUpFile;
use crate::gateway::history::History;
use crate::gateway::registrar::Office;
use crate::gateway::roster::Enrolled;
use crate::gateway::run_file::RunFile;
use crate::gateway::{self, Gateway};
use crate::http::{App, Server};
use crate::link::listen::Listener;
use crate::service::{Coordinator, GatewayService};
use crate::store::{Journal, OpenedJournal};
use crate::trust::RosterFile;

pub(super) async fn start(
    lab: &Lab,
    mut node: Prepared,
    around: &Surroundings,
    reloader: &Arc<Reloader>,
) -> Result<Running, StartError> {
    let config = lab.gateway.as_ref().expect("a gateway is prepared only where the lab file has one");
    let history = node.directory.join("events.db");
    let OpenedJournal { journal, events, relays, past, end } = Journal::open(&history, around.clock.now())
        .map_err(|source| StartError::History { node: node.name.clone(), source })?;
    let listener = Listener::bind(config.link, &node.identity, &around.udp)
        .map_err(|source| StartError::Link { key: "gateway.link".to_owned(), source })?;
    let listener = Arc::new(listener);
    let holds = PauseFile::under(&node.directory);
    let paused = holds.read().map_err(|source| StartError::Holds { node: node.name.clone(), source })?;
    let run_file = RunFile::under(&node.directory);
    let run = run_file.begin(around.clock.now().wall);
    let run = run.map_err(|source| StartError::State { node: node.name.clone(), source })?;
    let given_up_file = GivenUpFile::under(&node.directory);
    let given_up = given_up_file.read().map_err(|source| StartError::State { node: node.name.clone(), source })?;
    let tickets = Arc::new(TicketKey::new(&node.identity.derive("waiting ticket")));
    let office = office(lab, &mut node, &listener, around)?;
    let arguments = FrontArguments {
        name: node.name.clone(),
        roster: office.roster.workers().map(Enrolled::of).collect(),
        rules: lab.rules.lease.clone(),
        rebuild_wait: config.rebuild_wait,
        absence_grace: config.absence_grace,
        waiting: lab.rules.waiting.clone(),
        waiters_max: lab.rules.limits.waiters_max,
        tickets: Arc::clone(&tickets),
        run,
        run_file,
        given_up,
        given_up_file,
        holds_paused: paused,
        history: History::new(journal, relays, past, lab.rules.events.clone()),
        clock: around.clock.clone(),
    };
    let Gateway { front, front_task, welcoming, registrar } =
        gateway::start(arguments, office, Arc::clone(&listener)).await?;
    let clock = around.clock.clone();
    let service = GatewayService::new(front.clone(), events, node.name.clone(), clock, holds, tickets, registrar);
    let coordinator: Arc<dyn Coordinator> = Arc::new(service);
    let rules = Arc::new(LiveRules::new(lab.rules.clone()));
    let app = App {
        coordinator: Arc::clone(&coordinator),
        tokens: Arc::clone(&node.tokens),
        rules: Arc::clone(&rules),
        reloads: reloader.clone(),
        clock: around.clock.clone(),
    };
    let socket = node.directory.join("berth.sock");
    let server = match Server::bind(app, Some(config.api), &socket).await {
        Ok(server) => server,
        Err(source) => {
            front.stop(None);
            welcoming.abort();
            listener.close().await;
            return Err(StartError::Http { key: "gateway.api".to_owned(), source });
        }
    };
    let (name, of_store) = (node.name.clone(), node.name.clone());
    Ok(Running {
        api: server.local_addr(),
        coordinator,
        resources: 0,
        rules,
        server: Some(server),
        link: Some(Link::Gateway { listener, welcoming }),
        core: Core::Front(front),
        store: Some(end.clone()),
        ended: first([
            async move {
                let _ = front_task.await;
                Ended::Core("front", name)
            }
            .boxed(),
            async move { Ended::Store { node: of_store, source: end.wait().await.err() } }.boxed(),
        ]),
        _registration: registered(lab, &node, &socket),
        socket,
        name: node.name,
        role: node.role,
        _lock: node.lock,
    })
}

/// The roster as it is on disk, with the workers that the lab file names.
fn office(lab: &Lab, node: &mut Prepared, listener: &Listener, around: &Surroundings) -> Result<Office, StartError> {
    let config = lab.gateway.as_ref().expect("a gateway is prepared only where the lab file has one");
    let file = RosterFile::under(&node.directory);
    let failed = |source| StartError::Roster { node: node.name.clone(), source };
    let known = file.read().map_err(failed)?;
    let mut roster = known.clone();
    let full = |workers| StartError::RosterFull { node: node.name.clone(), workers };
    roster.configure(lab.workers.iter().map(|worker| &worker.name)).map_err(full)?;
    if roster != known {
        file.write(&roster).map_err(failed)?;
    }
    Ok(Office {
        lab: lab.name.clone(),
        gateway: node.name.clone(),
        address: dialled(config, Some(listener.local_addr())),
        authority: node.identity.authority(),
        issuer: node.issuer.take(),
        configured: lab.workers.iter().map(|worker| worker.name.clone()).collect(),
        roster,
        file,
        clock: around.clock.clone(),
    })
}
