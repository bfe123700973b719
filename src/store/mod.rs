//! The truth of a worker, on disk: one SQLite database, one writer, group commit. (A gateway has no truth; its history is a
//! [`Journal`].)
//!
//! Every change of a resource reaches the disk as a [`Batch`], together with the events that tell of it. The writer
//! takes what is queued, puts it into one transaction (WAL, `synchronous=FULL`), and answers each batch once the
//! transaction is durable. Nothing may be told before that answer. What a start reads is [`Loaded`]; what happened is
//! read from the [`EventLog`], and what must not be is looked for by [`Invariants`], both beside the writer.

mod change;
mod commit;
mod connection;
mod error;
mod event_log;
mod invariant;
mod journal;
mod load;
mod migrations;
mod row;
mod stored;
mod writer;

pub use commit::{Batch, Reopened, Store, StoreEnd};
pub use error::{CommitError, OpenError, ReadError};
pub use event_log::{EVENTS_READ_MAX, EventFilter, EventLog, EventRecord};
pub use invariant::{Invariants, VIOLATIONS_MAX, Violation};
pub use journal::{Journal, JournalFull, OpenRequest, OpenedJournal, Past, RelayedEvent, RelayedPage, Relays};
pub use migrations::SCHEMA_VERSION;
pub use stored::{Loaded, StoredDevice, StoredOutcome, StoredRequest, StoredResource, StoredWaiter, StoredWork};
