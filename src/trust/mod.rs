//! Who is who: the lab's authority, a node's certificate, the tokens of its clients, and those of holds.

mod authority;
mod file;
mod hold_token;
mod identity;
mod peer;
mod token;

pub use authority::Authority;
pub use file::{make_private_dir, replace_private_file};
pub use hold_token::HoldToken;
pub use identity::{Identity, PkiFiles, TrustError};
pub use peer::{PeerName, PeerVerifier};
pub use token::{ADMIN_TOKEN_FILE, Secret, TokenError, TokenInfo, Tokens, admin_token};
