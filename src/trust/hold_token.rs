//! Tokens of holds: whoever shows one may confirm the hold, or give it back (SPEC §6).
//!
//! A token is made by the node that the caller talks to and goes back to that caller alone; from there on only its hash
//! is said. It is dropped when the hold is not made.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use crate::model::{Refusal, TokenHash};

const PREFIX: &str = "bht_";
const RANDOM_BYTES: usize = 32;

/// The token of a hold. It is never printed by accident: `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct HoldToken(String);

impl HoldToken {
    /// A new one: 256 bits of the operating system's randomness.
    ///
    /// # Errors
    /// `INTERNAL` when the system has no randomness to give.
    pub fn generate() -> Result<Self, Refusal> {
        let mut bytes = [0; RANDOM_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| Refusal::internal("the system gives no random numbers, so nothing is held"))?;
        let mut text = PREFIX.to_owned();
        bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        Ok(Self(text))
    }

    /// `text` if it has the shape of a token.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let shaped = digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
        shaped.then(|| Self(text.to_owned()))
    }

    /// What a caller shows, whatever it looks like: one of another shape is a wrong token and no wrong request.
    pub fn shown(text: String) -> Self {
        Self(text)
    }

    /// The text itself, to be handed to whoever may know it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for HoldToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldToken(bht_…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_the_same_twice_and_hides_itself() {
        let (one, other) = (HoldToken::generate().unwrap(), HoldToken::generate().unwrap());
        assert_ne!(one, other);
        assert_eq!(HoldToken::parse(one.expose()), Some(one.clone()));
        assert!(one.expose().starts_with("bht_") && one.expose().len() == 4 + 64);
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
        assert!(!format!("{:?}", one.hash()).contains(&one.expose()[4..]));
    }

    #[test]
    fn what_is_no_token_is_a_wrong_one() {
        let token = HoldToken::generate().unwrap();
        for text in ["", "bht_", "bth_00", &token.expose()[1..], &format!("{}0", token.expose())] {
            assert_eq!(HoldToken::parse(text), None);
            assert_ne!(HoldToken::shown(text.to_owned()).hash(), token.hash());
        }
        assert_eq!(HoldToken::shown(token.expose().to_owned()).hash(), token.hash());
    }
}
