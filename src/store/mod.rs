//! The truth of a worker, on disk: one SQLite database, one writer, group commit.
//!
//! Every change of a resource reaches the disk as a [`Batch`]. The writer takes what is queued, puts it into one
//! transaction (WAL, `synchronous=FULL`), and answers each batch once the transaction is durable. Nothing may be
//! told before that answer. What a start reads is [`Loaded`].

mod commit;
mod error;
mod load;
mod migrations;
mod row;
mod writer;

pub use commit::{Batch, Store, StoreEnd};
pub use error::{CommitError, OpenError};
pub use load::{Loaded, StoredRequest, StoredResource};
pub use migrations::SCHEMA_VERSION;
