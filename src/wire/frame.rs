//! One value as one frame's payload.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{FRAME_BYTES_MAX, FRAME_DEPTH_MAX};

/// Why a frame is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It would be longer than a frame may be.
    #[error("a frame of {0} bytes is longer than {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The peer announces one that is longer.
    #[error("a frame is announced that is longer than it may be")]
    Oversized,
    /// It does not encode.
    #[error("cannot encode a frame")]
    Encode(#[source] rmp_serde::encode::Error),
    /// It is no value of the expected type.
    #[error("cannot decode a frame")]
    Decode(#[source] rmp_serde::decode::Error),
    /// Something follows the value.
    #[error("{0} bytes follow the value in a frame")]
    Trailing(usize),
}

/// The payload of one frame.
pub fn encode<T: Serialize>(value: &T) -> Result<Bytes, FrameError> {
    let bytes = rmp_serde::to_vec_named(value).map_err(FrameError::Encode)?;
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(bytes.len()));
    }
    Ok(bytes.into())
}

/// The value of one frame's payload.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    let mut rest = payload;
    let mut reader = rmp_serde::Deserializer::new(&mut rest);
    // Also what is ignored is read by recursion; the default bound is more than the stack of a thread holds.
    reader.set_max_depth(FRAME_DEPTH_MAX);
    let value = T::deserialize(&mut reader).map_err(FrameError::Decode)?;
    if rest.is_empty() { Ok(value) } else { Err(FrameError::Trailing(rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_value_are_refused() {
        let mut payload = encode(&7u8).unwrap().to_vec();
        assert_eq!(decode::<u8>(&payload).unwrap(), 7);
        payload.push(0);
        assert!(matches!(decode::<u8>(&payload), Err(FrameError::Trailing(1))));
    }

    #[test]
    fn a_value_that_does_not_fit_a_frame_is_not_sent() {
        assert!(matches!(encode(&"x".repeat(FRAME_BYTES_MAX)), Err(FrameError::TooLong(_))));
    }
}
