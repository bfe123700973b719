//! Tokens: who may come in over HTTP (SPEC §12).
//!
//! A token's secret is shown once, when it is created; the node keeps its SHA-256. The secrets are 256 random bits,
//! so a plain hash is as hard to turn back as a slow one. The admin token is the exception: it lies in a file that
//! only the node's own user can read, for the tools of that user.

mod file;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::model::time::{instant, instant_option};
use crate::model::{ADMIN, Caller, Code, Principal, Refusal, Role, TokenId};

/// The name of the file, under the node's directory, that holds the admin token.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";
/// The tokens of one node, revoked ones included: a name is never used twice.
const TOKENS_MAX: usize = 10_000;
const PREFIX: &str = "bth_";
const RANDOM_BYTES: usize = 32;

/// The secret of a token. It is never printed by accident: `Debug` hides it and there is no `Display`.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A new one from the operating system's randomness.
    fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0; RANDOM_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        let mut text = PREFIX.to_owned();
        bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        Ok(Self(text))
    }

    /// `text` if it has the shape of a secret.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let shaped = digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
        shaped.then(|| Self(text.to_owned()))
    }

    /// The text itself, to be handed to whoever may know it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(bth_…)")
    }
}

/// What a node keeps of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

impl From<SecretHash> for String {
    fn from(it: SecretHash) -> String {
        it.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for SecretHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const SHAPE: &str = "a hash is 64 hexadecimal digits";
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SHAPE);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| SHAPE)?;
        }
        Ok(Self(bytes))
    }
}

/// A token as lists show it; nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// Its id.
    pub id: TokenId,
    /// The principal that it stands for.
    pub name: Principal,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    #[serde(with = "instant")]
    pub created_at: Timestamp,
    /// When it ended; none while it is valid.
    #[serde(with = "instant_option", default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// A token as the file keeps it.
#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    info: TokenInfo,
    sha256: SecretHash,
}

/// Why a token operation failed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The rules say no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk says no.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gives no random numbers")]
    NoRandomness,
}

/// The tokens of one node. Changes are on disk before they count; asking who a secret stands for costs one hash and
/// one look-up.
pub struct Tokens {
    path: PathBuf,
    /// Held while the file is written, so that changes come one after the other.
    entries: Mutex<Vec<Entry>>,
    /// The secrets that are valid now.
    callers: RwLock<HashMap<SecretHash, Caller>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the tokens under `dir`, the node's own directory, which must exist. Makes the admin token at the first
    /// start.
    ///
    /// # Errors
    /// When a file cannot be read or written, is damaged, or is an admin token that others can read.
    pub fn open(dir: &Path) -> Result<Self, TokenError> {
        let admin = admin_token(dir)?;
        let path = dir.join("tokens.json");
        let entries: Vec<Entry> = file::read_tokens(&path)?;
        check_unique(&path, &entries)?;
        let valid = entries.iter().filter(|entry| entry.info.revoked_at.is_none());
        let mut callers: HashMap<SecretHash, Caller> =
            valid.map(|entry| (entry.sha256, caller_of(&entry.info))).collect();
        callers.insert(SecretHash::of(admin.expose()), Caller::admin());
        Ok(Self { path, entries: Mutex::new(entries), callers: RwLock::new(callers) })
    }

    /// Makes a token; its secret is returned here and nowhere else.
    ///
    /// # Errors
    /// `BAD_REQUEST` for a name that is reserved or was used before, also by a revoked token, and when there are
    /// 10 000; a fault when the disk fails, and then there is no token.
    pub fn create(&self, name: Principal, role: Role, now: Timestamp) -> Result<(TokenInfo, Secret), TokenError> {
        if name.as_str() == ADMIN {
            return Err(Refusal::bad_field("name", "admin is the machine's own operator; choose another").into());
        }
        let mut entries = self.lock();
        if entries.iter().any(|entry| entry.info.name == name) {
            let why = format!("{name} was used before, and a name is never used twice; choose another");
            return Err(Refusal::bad_field("name", why).into());
        }
        if entries.len() >= TOKENS_MAX {
            let why = format!("this node has had {TOKENS_MAX} tokens, the most that it keeps");
            return Err(Refusal::bad_field("name", why).into());
        }
        let secret = Secret::generate()?;
        let info = TokenInfo { id: TokenId::generate(), name, role, created_at: now, revoked_at: None };
        let entry = Entry { info: info.clone(), sha256: SecretHash::of(secret.expose()) };
        let mut after = entries.clone();
        after.push(entry.clone());
        file::write_tokens(&self.path, &after)?;
        *entries = after;
        self.callers.write().unwrap_or_else(PoisonError::into_inner).insert(entry.sha256, caller_of(&info));
        Ok((info, secret))
    }

    /// All tokens, in the order they were made; revoked ones too, but not the admin token.
    pub fn list(&self) -> Vec<TokenInfo> {
        self.lock().iter().map(|entry| entry.info.clone()).collect()
    }

    /// Ends a token; from the return on it authenticates nobody. Ending one twice answers the first end.
    ///
    /// # Errors
    /// `UNKNOWN_TOKEN`; a fault when the disk fails, and then the token is still valid.
    pub fn revoke(&self, id: &TokenId, now: Timestamp) -> Result<TokenInfo, TokenError> {
        let mut entries = self.lock();
        let mut after = entries.clone();
        let Some(entry) = after.iter_mut().find(|entry| entry.info.id == *id) else {
            let message = format!("no token {id}; `berth token list` shows them");
            return Err(Refusal::new(Code::UnknownToken, message).into());
        };
        if entry.info.revoked_at.is_some() {
            return Ok(entry.info.clone());
        }
        entry.info.revoked_at = Some(now);
        let (info, hash) = (entry.info.clone(), entry.sha256);
        file::write_tokens(&self.path, &after)?;
        *entries = after;
        self.callers.write().unwrap_or_else(PoisonError::into_inner).remove(&hash);
        Ok(info)
    }

    /// Who `secret` stands for.
    pub fn authenticate(&self, secret: &str) -> Option<Caller> {
        let hash = SecretHash::of(secret);
        let callers = self.callers.read().unwrap_or_else(PoisonError::into_inner);
        let (known, caller) = callers.get_key_value(&hash)?;
        bool::from(known.0.ct_eq(&hash.0)).then(|| caller.clone())
    }

    /// A panic elsewhere cannot leave the list half changed: it is replaced whole.
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The admin token of the node whose directory is `dir`: read, or made at the first start (0600).
///
/// # Errors
/// When the file cannot be read or written, is no token, or can be read by others.
pub fn admin_token(dir: &Path) -> Result<Secret, TokenError> {
    let path = dir.join(ADMIN_TOKEN_FILE);
    if let Some(text) = file::read_private(&path)? {
        return Secret::parse(text.trim_end()).ok_or_else(|| TokenError::Damaged {
            path,
            why: "it holds no token; delete it, and the next start makes a new one".to_owned(),
        });
    }
    let secret = Secret::generate()?;
    file::write_private(&path, format!("{}\n", secret.expose()).as_bytes())?;
    Ok(secret)
}

fn caller_of(info: &TokenInfo) -> Caller {
    Caller { principal: info.name.clone(), role: info.role }
}

/// The file may have been edited by hand; two tokens of one name would let one speak for the other.
fn check_unique(path: &Path, entries: &[Entry]) -> Result<(), TokenError> {
    let mut names = HashSet::new();
    for Entry { info, .. } in entries {
        if info.name.as_str() == ADMIN || !names.insert(&info.name) {
            let why = format!("{} is reserved or there twice; remove that entry", info.name);
            return Err(TokenError::Damaged { path: path.to_owned(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
