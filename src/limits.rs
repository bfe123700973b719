//! The maximum of everything that could grow, with its unit last.

use std::time::Duration;

/// The largest frame between nodes.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// How deeply the values of a frame may be nested, the ones that a reader ignores included.
pub const FRAME_DEPTH_MAX: usize = 64;
/// The largest HTTP body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Resources of one node.
pub const RESOURCES_MAX: usize = 100_000;
/// Shared leases of one resource. All of them fit one frame, however long their notes and keys.
pub const SHARED_MAX: u32 = 256;
/// Workers of one lab.
pub const WORKERS_MAX: usize = 1_000;
/// Machines that ask a gateway to join at once; one more is sent away and asks again.
pub const JOINS_MAX: usize = 16;
/// Waiters of one node, of both kinds, unless `limits.waiters` says less.
pub const WAITERS_MAX: usize = 200_000;
/// Bookings of one resource that are not over, unless `limits.bookings` says less.
pub const BOOKINGS_MAX: usize = 100_000;
/// Scheduled bookings of one principal, a series counted as one, unless `limits.bookings_per_principal` says otherwise.
pub const BOOKINGS_PER_PRINCIPAL_MAX: usize = 100;
/// Active holds of one principal, unless `limits.holds_per_principal` says otherwise.
pub const HOLDS_PER_PRINCIPAL_MAX: usize = 8;
/// Bookings that are over, and as many holds, that one node remembers; the oldest go first.
pub const CALENDAR_ARCHIVE_MAX: usize = 100_000;
/// How long one that is over is remembered at most (SPEC §6).
pub const CALENDAR_ARCHIVE_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// Bookings in one answer, and holds.
pub const BOOKINGS_PAGE_MAX: usize = 500;
/// The longest window that any lab file may allow (`bookings.max_duration`).
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bookings in one answer of a worker to its gateway. They fit a frame, however long their notes.
pub const BOOKINGS_PER_FRAME_MAX: usize = 256;
/// Workers that a gateway asks at once for their bookings.
pub const CALENDARS_ASKED_MAX: usize = 32;
/// Callers that wait for one lease request.
pub const WATCHERS_MAX: usize = 1_024;
/// Lease requests that wait at a gateway for a worker's answer.
pub const OPEN_REQUESTS_MAX: usize = 200_000;
/// Commands that wait for one resource's commit.
pub const RESOURCE_QUEUE_MAX: usize = 1_024;
/// Checks of devices that run on one node at once; more wait for their turn.
pub const CHECKS_AT_ONCE_MAX: usize = 64;
/// Batches that wait for the store's writer.
pub const STORE_QUEUE_MAX: usize = 16_384;
/// Batches that share one transaction.
pub const STORE_GROUP_MAX: usize = 1_024;
/// Events that wait for the writer of a gateway's history; one more and the gateway ends.
pub const JOURNAL_QUEUE_MAX: usize = 1024 * 1024;
/// Events and pages of events that share one transaction there.
pub const JOURNAL_GROUP_MAX: usize = 4_096;
/// Calls of the gateway that one worker has not answered.
pub const CALLS_IN_FLIGHT_MAX: usize = 1_024;
/// Resources of one worker that are said to be leased elsewhere.
pub const ELSEWHERE_MAX: usize = 1_024;
/// Deltas that wait for the link to the gateway; one more and the worker sends a snapshot instead.
pub const DELTAS_QUEUED_MAX: usize = 16_384;
/// Resources and leases, counted alike, in one chunk of a snapshot.
pub const SNAPSHOT_CHUNK_RECORDS_MAX: usize = 1_024;
/// Requests of a gateway's in one chunk of a snapshot. They fit a frame, however long their refusals.
pub const REQUEST_ROWS_PER_FRAME_MAX: usize = 128;
/// Settled requests of a gateway's that a worker tells of; what is older is forgotten.
pub const SETTLED_ROWS_MAX: usize = 200_000;
/// Those who wait, in one answer of a worker to its gateway.
pub const WAITERS_PER_FRAME_MAX: usize = 2_000;
/// Events in one page of a worker's to its gateway.
pub const EVENTS_PER_PAGE_MAX: usize = 100;
/// The facts of one event on their way to the gateway, as JSON.
pub const EVENT_PAYLOAD_BYTES_MAX: usize = 8 * 1024;
/// How deeply they may be nested.
pub const EVENT_PAYLOAD_DEPTH_MAX: usize = 16;
/// Settled requests that are remembered without a key.
pub const SETTLED_REQUESTS_MAX: usize = 10_000;
/// Settled requests that are remembered with a key, for each requester.
pub const SETTLED_KEYS_PER_REQUESTER_MAX: usize = 64;
/// Selectors that a gateway writes down while somebody waits by them; more count as any.
pub const WAITED_SELECTORS_MAX: usize = 256;
/// Attempts that a gateway has given up and not settled; one more stays in doubt.
pub const GIVEN_UP_MAX: usize = 10_000;
/// Open HTTP connections of one listener.
pub const HTTP_CONNECTIONS_MAX: usize = 16_384;
/// HTTP requests that are served at once.
pub const HTTP_REQUESTS_MAX: usize = 16_384;
/// Hooks of one node that run at once; each is two processes, and three open files of the node.
pub const HOOKS_AT_ONCE_MAX: usize = 128;
/// Of what a tool reads, and of what it writes, so much is on its way at once: sent, and not yet acknowledged (SPEC §7).
pub const EXEC_WINDOW_BYTES: usize = 64 * 1024;
/// The longest piece of a tool's output.
pub const EXEC_CHUNK_BYTES_MAX: usize = 16 * 1024;
/// Tools that run under one lease at once.
pub const EXECS_PER_LEASE_MAX: usize = 16;
/// Tools that run on one worker at once.
pub const EXECS_MAX: usize = 256;

/// The bound of a short call between nodes (SPEC §9).
pub const CALL_BOUND: Duration = Duration::from_secs(10);
/// The longest one lease request is dispatched to one worker (SPEC §9).
pub const DISPATCH_BOUND: Duration = Duration::from_secs(300);
/// The longest that any lab file may let a `prepare` run: a gateway's dispatch waits for it.
pub const PREPARE_MAX: Duration = Duration::from_secs(120);
/// When an acquire answers at the latest: its device may be made ready first.
pub const ACQUIRE_BOUND: Duration = Duration::from_secs(150);
/// When `POST /v1/lease-requests` answers at the latest (SPEC §2).
pub const REQUEST_ANSWER_BOUND: Duration = Duration::from_secs(2);
/// The same with `noWait`.
pub const NO_WAIT_ANSWER_BOUND: Duration = Duration::from_secs(10);
/// The longest long poll (SPEC §12).
pub const LONG_POLL_MAX: Duration = Duration::from_secs(60);
/// Each step of an orderly stop (requests that run, the mailbox, the disk) takes at most this long.
pub const STOP_BOUND: Duration = Duration::from_secs(10);

const _: () = assert!(BODY_BYTES_MAX < FRAME_BYTES_MAX, "what a client may send fits into a frame");
const _: () = assert!(EXEC_CHUNK_BYTES_MAX <= EXEC_WINDOW_BYTES && EXECS_PER_LEASE_MAX <= EXECS_MAX);
/// A lease in a report takes less than this: a note of 512 characters of 4 bytes, a key of 200, and names.
const LEASE_ROW_BYTES_MAX: usize = 512 * 4 + 200 + 1_000;
const _: () = assert!(SHARED_MAX as usize * LEASE_ROW_BYTES_MAX + 128 * 1024 < FRAME_BYTES_MAX);
const _: () = assert!(PREPARE_MAX.as_secs() + CALL_BOUND.as_secs() < ACQUIRE_BOUND.as_secs());
const _: () = assert!(ACQUIRE_BOUND.as_secs() < DISPATCH_BOUND.as_secs());
const _: () = assert!(STORE_GROUP_MAX <= STORE_QUEUE_MAX);
const _: () = assert!(5 * OPEN_REQUESTS_MAX <= JOURNAL_QUEUE_MAX, "all open requests may move at once");
