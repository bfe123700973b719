//! Who is who: the lab's authority, a node's certificate, the roster of workers and how they join, the tokens of clients
//! and those of holds.

mod authority;
mod file;
mod fingerprint;
mod hold_token;
mod identity;
mod invitation;
mod joiner;
mod peer;
pub mod roster;
mod token;

pub use authority::Authority;
pub use file::{make_private_dir, replace_private_file};
pub use fingerprint::Sha256Print;
pub use hold_token::HoldToken;
pub use identity::{Identity, PkiFiles, TrustError};
pub use invitation::{INVITATION_BYTES_MAX, INVITATION_KEPT, Invitation, InvitationSecret, SecretHash};
pub use joiner::{JoinerKey, PublicKey, joined_files, joiner_tls, keep_answer};
pub use peer::{PeerName, PeerVerifier, shown};
pub use roster::{Roster, RosterFile};
pub use token::{ADMIN_TOKEN_FILE, Secret, TokenError, TokenInfo, Tokens, admin_token};
