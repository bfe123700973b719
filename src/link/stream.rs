//! Frames on a QUIC stream.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::LinkError;
use crate::limits::FRAME_BYTES_MAX;
use crate::wire::frame::{decode, encode};

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
    Ok(reader.next().await.transpose()?.map(Into::into))
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
