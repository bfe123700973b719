//! Who is who: the lab's authority, a node's certificate, and the tokens of its clients.

mod authority;
mod file;
mod identity;
mod peer;
mod token;

pub use authority::Authority;
pub use file::make_private_dir;
pub use identity::{Identity, PkiFiles, TrustError};
pub use peer::{PeerName, PeerVerifier};
pub use token::{ADMIN_TOKEN_FILE, Secret, TokenError, TokenInfo, Tokens, admin_token};
