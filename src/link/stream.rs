//! Frames on a QUIC stream.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec, LengthDelimitedCodecError};

use super::LinkError;
use crate::limits::FRAME_BYTES_MAX;
use crate::wire::frame::{FrameError, decode, encode};

/// Reads frames.
pub type FrameReader = FramedRead<quinn::RecvStream, LengthDelimitedCodec>;
/// Writes frames.
pub type FrameWriter = FramedWrite<quinn::SendStream, LengthDelimitedCodec>;

fn codec(bytes_max: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().length_field_length(4).max_frame_length(bytes_max).new_codec()
}

pub(super) fn reader(stream: quinn::RecvStream) -> FrameReader {
    short_reader(stream, FRAME_BYTES_MAX)
}

/// A reader for a peer that nobody knows: its frames have at most `bytes_max`.
pub(super) fn short_reader(stream: quinn::RecvStream, bytes_max: usize) -> FrameReader {
    FramedRead::new(stream, codec(bytes_max))
}

pub(super) fn writer(stream: quinn::SendStream) -> FrameWriter {
    FramedWrite::new(stream, codec(FRAME_BYTES_MAX))
}

/// The next frame's payload; none at the end of the stream.
pub(super) async fn read_raw(reader: &mut FrameReader) -> Result<Option<Bytes>, LinkError> {
    Ok(reader.next().await.transpose().map_err(broken)?.map(Into::into))
}

/// A length that no frame may have is the peer's fault, not the network's.
fn broken(error: std::io::Error) -> LinkError {
    let oversized = error.get_ref().is_some_and(|inner| inner.is::<LengthDelimitedCodecError>());
    if oversized { FrameError::Oversized.into() } else { error.into() }
}

/// The next value; none at the end of the stream.
pub async fn read<T: DeserializeOwned>(reader: &mut FrameReader) -> Result<Option<T>, LinkError> {
    match read_raw(reader).await? {
        Some(payload) => Ok(Some(decode(&payload)?)),
        None => Ok(None),
    }
}

/// Sends a value.
pub async fn write<T: Serialize>(writer: &mut FrameWriter, value: &T) -> Result<(), LinkError> {
    Ok(writer.send(encode(value)?).await?)
}

/// Sends what is already encoded.
pub(super) async fn write_raw(writer: &mut FrameWriter, payload: Bytes) -> Result<(), LinkError> {
    Ok(writer.send(payload).await?)
}

#[cfg(test)]
mod tests {
    use tokio_util::codec::Decoder;

    use super::*;

    #[test]
    fn a_frame_that_is_announced_too_long_breaks_the_protocol_and_a_stream_that_breaks_does_not() {
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap();
        assert!(codec(FRAME_BYTES_MAX).decode(&mut length.to_be_bytes().as_slice().into()).unwrap().is_none());
        let announced = codec(FRAME_BYTES_MAX).decode(&mut (length + 1).to_be_bytes().as_slice().into());
        let error = broken(announced.unwrap_err());
        assert_eq!(error.to_string(), "a frame is announced that is longer than it may be");
        assert_eq!(error.rejection(), Some("broken-protocol"));
        assert_eq!(broken(std::io::ErrorKind::UnexpectedEof.into()).rejection(), None);
    }
}
