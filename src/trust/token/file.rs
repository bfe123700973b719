//! The files of the tokens. They are replaced whole, and are 0600 from the instant they exist.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::file::replace_private_file;
use super::{Entry, TokenError};

/// Far above what 10 000 tokens take; a larger file is not ours.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct TokensFile<T> {
    version: u32,
    tokens: T,
}

/// The entries of `path`; none when there is no such file yet.
pub(super) fn read_tokens(path: &Path) -> Result<Vec<Entry>, TokenError> {
    let Some(text) = read_private(path)? else {
        return Ok(Vec::new());
    };
    let damaged = |why: String| TokenError::Damaged { path: path.to_owned(), why };
    let file: TokensFile<Vec<Entry>> =
        serde_json::from_str(&text).map_err(|error| damaged(format!("{error}; restore it from a backup")))?;
    if file.version != VERSION {
        return Err(damaged(format!("its version is {}, this Berth reads {VERSION}", file.version)));
    }
    Ok(file.tokens)
}

/// Replaces the entries of `path`; they are on disk when this returns.
pub(super) fn write_tokens(path: &Path, tokens: &[Entry]) -> Result<(), TokenError> {
    let mut text = serde_json::to_vec_pretty(&TokensFile { version: VERSION, tokens })
        .map_err(|error| TokenError::File { verb: "write", path: path.to_owned(), source: error.into() })?;
    text.push(b'\n');
    write_private(path, &text)
}

/// The text of a file that only its owner may read; none when there is no such file.
pub(super) fn read_private(path: &Path) -> Result<Option<String>, TokenError> {
    let failed = |source| TokenError::File { verb: "read", path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("others may use it (mode {mode:o}); make it private with `chmod 600`");
        return Err(TokenError::Damaged { path: path.to_owned(), why });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Replaces a file in one step: a reader sees the old text or the new, also after a power cut.
pub(super) fn write_private(path: &Path, text: &[u8]) -> Result<(), TokenError> {
    replace_private_file(path, text).map_err(|source| TokenError::File { verb: "write", path: path.to_owned(), source })
}
