//! Starting a worker.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt;
use uuid::Uuid;

use super::running::{Core, Link, first, registered};
use super::{Ended, Prepared, Reloader, Running, StartError, Surroundings};
use crate::admission::ticket::TicketKey;
use crate::config::{GatewayConfig, Lab, WorkerConfig};
use crate::driver::{Drivers, Guard, Programs};
use crate::host::exec::ExecDoor;
use crate::host::uplink::{Standings, Uplink};
use crate::host::{self, Host, HostArguments};
use crate::http::{App, Server};
use crate::link::dial::Dialer;
use crate::service::{Coordinator, HostService};

/// `link` is where the gateway listens, if it runs in this process.
pub(super) async fn start(
    lab: &Lab,
    node: Prepared,
    link: Option<SocketAddr>,
    around: &Surroundings,
    reloader: &Arc<Reloader>,
) -> Result<Running, StartError> {
    let config: &WorkerConfig = (lab.workers.iter().find(|worker| worker.name == node.name))
        .expect("a worker is prepared only where the lab file has it");
    let guard = match &around.guard {
        Some(guard) => guard.clone(),
        None => Guard::of_this_process().map_err(|source| StartError::Guard { node: node.name.clone(), source })?,
    };
    let hands = match &around.hands {
        Some(hands) => Arc::clone(hands),
        None => Arc::new(Drivers { programs: Arc::new(Programs::new(guard.clone())) }),
    };
    let arguments = HostArguments {
        name: node.name.clone(),
        database: node.directory.join("berth.db"),
        resources: config.resources.clone(),
        gateway: lab.gateway.as_ref().map(|gateway| gateway.name.clone()),
        rules: lab.rules.clone(),
        tickets: TicketKey::new(&node.identity.derive("waiting ticket")),
        hands,
        clock: around.clock.clone(),
    };
    let failed = |source| StartError::Host { node: node.name.clone(), source };
    let Host { desk, rules, events, tickets, incarnation, desk_task, store_end } =
        host::start(arguments).await.map_err(failed)?;
    let gateway = lab.gateway.as_ref().map(|gateway| (gateway, dialled(gateway, link)));
    let (standings, standing) = gateway
        .as_ref()
        .map(|(gateway, address)| Standings::new(gateway.name.clone(), address.clone(), &around.clock))
        .unzip();
    let execs = ExecDoor { desk: desk.clone(), guard };
    let tickets_of_link = Arc::clone(&tickets);
    let service =
        HostService::new(desk.clone(), events.clone(), tickets, node.name.clone(), around.clock.clone(), execs.clone());
    let service = service.with_gateway(standing);
    let coordinator: Arc<dyn Coordinator> = Arc::new(service);
    let app = App {
        coordinator: Arc::clone(&coordinator),
        tokens: Arc::clone(&node.tokens),
        rules: Arc::clone(&rules),
        reloads: reloader.clone(),
        clock: around.clock.clone(),
    };
    let socket = node.directory.join("berth.sock");
    let opened = async {
        let server = Server::bind(app, config.api, &socket)
            .await
            .map_err(|source| StartError::Http { key: format!("worker.{}.api", node.name), source })?;
        let link = match gateway.zip(standings) {
            None => Link::Standalone,
            Some(((gateway, address), standings)) => {
                let dialer = Dialer::new(&node.identity, &gateway.name, &address, &around.udp)
                    .map_err(|source| StartError::Link { key: "gateway.address".to_owned(), source })?;
                let dialer = Arc::new(dialer);
                let uplink = Uplink {
                    dialer: Arc::clone(&dialer),
                    address,
                    gateway: gateway.name.clone(),
                    desk: desk.clone(),
                    events,
                    incarnation,
                    clock: around.clock.clone(),
                    rules: Arc::clone(&rules),
                    tickets: tickets_of_link,
                    standings,
                    execs,
                };
                Link::Worker { dialer, uplink: tokio::spawn(async move { uplink.run(Uuid::new_v4()).await }) }
            }
        };
        Ok((server, link))
    };
    let (server, link) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            desk.stop(None);
            return Err(error);
        }
    };
    let (name, of_store) = (node.name.clone(), node.name.clone());
    Ok(Running {
        api: server.local_addr(),
        coordinator,
        resources: config.resources.len(),
        rules,
        server: Some(server),
        link: Some(link),
        core: Core::Desk(desk),
        store: Some(store_end.clone()),
        ended: first([
            async move {
                let _ = desk_task.await;
                Ended::Core("desk", name)
            }
            .boxed(),
            async move { Ended::Store { node: of_store, source: store_end.wait().await.err() } }.boxed(),
        ]),
        _registration: registered(lab, &node, &socket),
        socket,
        name: node.name,
        role: node.role,
        _lock: node.lock,
    })
}

/// Where the worker dials: the port that the gateway of this process got, or what the lab file says.
pub(super) fn dialled(gateway: &GatewayConfig, link: Option<SocketAddr>) -> String {
    match link {
        Some(listening) if gateway.link.port() == 0 => {
            let ip = match listening.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            SocketAddr::new(ip, listening.port()).to_string()
        }
        _ => gateway.address.clone(),
    }
}
