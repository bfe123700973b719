//! Sentences between a worker and its gateway. The documentation of this module and of its parts is the protocol:
//! complete enough to write a peer in another language.
//!
//! # The link
//! The worker dials the gateway over QUIC (UDP), TLS 1.3, ALPN `berth/1`; both sides show a certificate of the
//! lab's CA. A certificate names its owner in one URI: `berth://<lab>/gateway/<name>` or
//! `berth://<lab>/worker/<name>`. The worker refuses a peer that is not its lab's gateway of the configured name; the
//! gateway refuses a peer that is not a worker of its lab's roster. Nothing else names a peer: no message does.
//! Both send a QUIC keep-alive every 500 ms and give a silent link up after 5 s.
//!
//! # Streams
//! | stream | opened by | carries |
//! |---|---|---|
//! | control, bidirectional, the first | worker | [`hello`], then [`report`]: deltas up, acknowledgements down |
//! | calls, bidirectional, the first that the gateway opens | gateway | [`call`]: calls down, answers up |
//! | snapshot, unidirectional, one for each | worker | [`report`]: one whole report |
//!
//! # Frames
//! Every stream is a sequence of frames: a length, 4 bytes, big-endian, at most [`FRAME_BYTES_MAX`], then that many
//! bytes of MessagePack: one value, nothing after it. Structures are maps with their fields' names, enumerations are
//! externally tagged (`"unit"`, or `{"variant": …}`), names are in camelCase. Fields a reader does not know are
//! ignored. Lease records are arrays, see [`report::LeaseRow`]. A frame that is too long or does not decode ends the
//! link, but for an unknown call: that is an error of that call only.
//!
//! [`FRAME_BYTES_MAX`]: crate::limits::FRAME_BYTES_MAX

pub mod call;
pub mod frame;
pub mod hello;
pub mod report;
mod version;

pub use version::{ALPN, PROTOCOL, ProtocolRange, ProtocolVersion};
