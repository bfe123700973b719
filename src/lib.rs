//! Berth leases the devices of a multi-machine lab, one holder at a time.
//!
//! This is the manual of the inside. The README says what Berth does and how it is run.
//!
//! # The house
//! A module may use the modules on lines above its own, never below, never beside.
//!
//! | line | modules | what lives there |
//! |---|---|---|
//! | 1 | [`model`] [`clock`] [`limits`] | words, time, numbers |
//! | 2 | [`admission`] [`wire`] [`trust`] | rules, pure · sentences between nodes · who is who |
//! | 3 | [`store`] [`link`] [`driver`] | disk · network · devices |
//! | 4 | [`host`] [`gateway`] | the two roles; they meet only in [`wire`] |
//! | 5 | [`service`] | what both roles answer |
//! | 6 | [`http`] [`client`] | the contract, served and spoken |
//! | 7 | [`cli`] | the command line |
//! | 8 | [`config`] [`telemetry`] [`node`] | assembly |
//!
//! # Three rules
//! 1. **Decide, commit, apply.** The rules are pure: [`admission::resource::decide`] answers a command with changes
//!    and a reply. The changes are made durable in one transaction, then applied, then the reply is told. Nothing is
//!    told before it is durable.
//! 2. **Calls go down, casts go up.** A lower actor never calls a higher one. No handler waits for network or disk:
//!    it sends, and gets the result as a message.
//! 3. **One place enforces a rule.** The checks of a lease request live in [`admission::Ledger`] and serve the
//!    host and the gateway alike. Codes, statuses and exit codes are one table, [`model::Code`]. The database
//!    repeats the invariants as constraints, as the last guard.
//!
//! # A lease, all the way
//! [`http`] checks who calls and what the body says, and asks the node's [`service::Coordinator`]. At a gateway that
//! is the front ([`gateway::front`]): it reserves requester, lease id and key in the ledger, places the request
//! ([`gateway::placement`]) and sends it over a worker's session ([`gateway::session`]) as a
//! [`Dispatch`](wire::call::Dispatch). At the worker the uplink ([`host::uplink`]) hands it to the desk
//! ([`host::desk`]), the desk to the resource's own actor; that decides and sends the changes to the [`store`], which
//! joins them with others in one flush. The way back is the same: the resource's new state reaches the desk before
//! the answer leaves it, and the front routes the lease before the caller hears of it.
//!
//! # Waiting, all the way
//! Whoever asks for a resource by its name and has to wait stands in that resource's
//! [`WaitingRoom`](admission::WaitingRoom); whoever asks by a selector waits once, in the desk's
//! [`Pool`](admission::Pool). Both have a [`Rank`](admission::Rank) that the desk gave out, so the two can be compared.
//! When something ends, [`decide`](admission::resource::decide) hands over in the same transaction to the first that
//! waits there, unless one of the pool ranks before: the command carries their ranks. Then the desk offers the resource
//! to that one, before anything else that is asked of the resource. An attended waiter (a lease request) is granted; an
//! unattended one is only named and has to ask again. What a request waits for, its timeout and its owner's interest are
//! the desk's ([`host`]); whoever waited when the node was restarted takes its place over with a signed
//! [`ticket`](admission::ticket).
//!
//! # A device, all the way
//! What is done to a device around its leases is decided where the leases are ([`admission::resource`]), done by whoever has
//! hands ([`driver::Hands`]), and carried from one to the other by the desk ([`host`]).
//!
//! 1. **Claim.** Where the driver has a `prepare`, [`decide`](admission::resource::decide) answers an ask not with a lease but
//!    with a [`Claim`](admission::resource::Claim): on disk, with the fence that the lease will have. Requester, lease id and
//!    resource are taken from then on.
//! 2. **Job.** After every change the desk reads from the resource's state what is to run on its device, a
//!    [`Task`](admission::resource::Task), and compares it with what runs: it starts a [`driver::Job`], or stops one that is
//!    not wanted any more, and begins the next when that is gone. One job at a time on each device; checks run where nothing
//!    else does. A hook runs under a [`driver::Guard`], a process that outlives a killed node just long enough to kill it.
//! 3. **Lease.** How a job ended is a command to the resource ([`Worked`](admission::resource::Worked)). A `prepare` that
//!    succeeded makes the lease of the claim, and its time begins; one that failed ends the claim, and the desk looks for
//!    another device, once, for a request that did not name this one.
//! 4. **Reset.** The end of the last lease, or of a claim, is written together with the reset that it leads to. So a node that
//!    is killed at any moment finds on its disk what is still to be done, and does it before the device is granted.
//!
//! A late answer changes nothing. A task is known by its hook, by the fence of its grant, and by how often it was tried; the
//! resource takes an outcome in only where that is the task that it waits for. Nor does it touch the next lease: that is not
//! granted before the job of the former one is gone.
//!
//! What is seen of a device comes from the other side. A [`Watcher`](driver::adb::Watcher) follows the adb servers and tells
//! the desk what becomes of the device of each resource; the desk shows what it knows of it, and the resource decides what it
//! means: `absent`, or a notice for whoever has it leased. While somebody has it, the desk pins the resource to that device,
//! by the identity on its disk.
//!
//! # A booking, all the way
//! [`http`] makes a [`CalendarCall`](wire::calendar::CalendarCall) of what the body says and asks
//! [`service::calendar::Calendars`]. At a gateway the front ([`gateway::calendar`]) finds the worker by the resource or by
//! the name of the booking, which begins with the worker's, and passes the call on; at the worker the desk hands it to the
//! resource's actor, and [`admission::calendar`] decides. The token of a hold is made where the caller talks to: from there
//! on only its hash is said.
//!
//! # A lab file, read again
//! A signal or `POST /v1/config/reload` has [`node::Reloader`] read the file anew. Its numbers and its resources go to the
//! desk, and its numbers to the front, in one message each: from then on every command is decided by them, and everybody else
//! looks at [`LiveRules`](admission::LiveRules). A resource that has gone dismisses those who wait for it and goes when
//! nothing holds it ([`host`]).
//!
//! # A tool, all the way
//! [`http`] takes one request, or a WebSocket, and asks [`service::exec::Execs`] for a line to the tool. At a gateway the
//! front says which worker has the lease, for its owner alone, and [`link::exec`] opens a stream beside the calls
//! ([`wire::exec`] is what is said on it). At the worker the desk gives out a permit of one grant ([`host::execs`]), which
//! ends with the lease; the tool runs in a task of its own ([`host::exec`]) as a [`driver::Tool`]. From the client to the tool
//! no more than a window of bytes is on its way in each direction, and nobody in between holds more.

pub mod admission;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod driver;
pub mod gateway;
pub mod host;
pub mod http;
pub mod limits;
pub mod link;
pub mod model;
pub mod node;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod trust;
pub mod wire;
