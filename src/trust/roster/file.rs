//! The roster's file, `roster.json` in the gateway's directory: replaced whole, 0600, strict, versioned.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::file::replace_private_file;
use super::{REVOKED_KEYS_MAX, Roster};
use crate::limits::WORKERS_MAX;

const FILE: &str = "roster.json";
const VERSION: u32 = 1;
/// Far above what a full roster takes; a larger file is not ours.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Why there is no roster. Each names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// It cannot be read or written.
    #[error("cannot {verb} {path}: check who may use it and that there is room")]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what this Berth writes.
    #[error("{path}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned<T> {
    version: u32,
    roster: T,
}

/// Where a gateway keeps its roster.
#[derive(Debug, Clone)]
pub struct RosterFile(PathBuf);

impl RosterFile {
    /// The file of the gateway whose directory this is.
    pub fn under(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// What was written last; an empty roster if nothing ever was.
    ///
    /// # Errors
    /// The file is not readable or not what this Berth writes.
    pub fn read(&self) -> Result<Roster, RosterError> {
        let failed = |source| RosterError::File { verb: "read", path: self.0.clone(), source };
        let damaged = |why: String| RosterError::Damaged { path: self.0.clone(), why };
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Roster::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let file: Versioned<Roster> =
            serde_json::from_str(&text).map_err(|error| damaged(format!("{error}; restore it from a backup")))?;
        if file.version != VERSION {
            return Err(damaged(format!("its version is {}, this Berth reads {VERSION}", file.version)));
        }
        let Roster { workers, revoked, invitations } = &file.roster;
        if workers.len() > WORKERS_MAX || invitations.len() > 2 * WORKERS_MAX || revoked.len() > REVOKED_KEYS_MAX {
            return Err(damaged("has more entries than a lab may have; restore it from a backup".to_owned()));
        }
        Ok(file.roster)
    }

    /// Makes a roster durable. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says; then the file is as it was.
    pub fn write(&self, roster: &Roster) -> Result<(), RosterError> {
        let failed = |source| RosterError::File { verb: "write", path: self.0.clone(), source };
        let versioned = Versioned { version: VERSION, roster };
        let mut text = serde_json::to_vec_pretty(&versioned).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        replace_private_file(&self.0, &text).map_err(failed)
    }
}
