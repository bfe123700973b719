//! Sentences between a worker and its gateway. The documentation of this module and of its parts is the protocol:
//! complete enough to write a peer in another language.
//!
//! # The link
//! The worker dials the gateway over QUIC (UDP), TLS 1.3, ALPN `berth/1`; both sides show a certificate of the
//! lab's CA. A certificate names its owner in one URI: `berth://<lab>/gateway/<name>` or
//! `berth://<lab>/worker/<name>`. The worker refuses a peer that is not its lab's gateway of the configured name; the
//! gateway refuses a peer that is not a worker of its lab's roster. Nothing else names a peer: no message does.
//! Names and addresses of hosts are in no certificate and are not checked; a worker need not send one (SNI). The keys that
//! `berth` makes are of P-256, and the gateway sends its CA along. There is no resumption and no 0-RTT.
//! Both send a QUIC keep-alive every 500 ms and give a silent link up after 5 s. `Hello` must have come within 5 s of the
//! first packet, and a snapshot within 30 s of `Welcome` and of each time that one is asked for.
//!
//! A worker that dials again replaces its former link; its new link begins with `Hello` and a snapshot, whatever was
//! said on the former. It dials again after 100 ms, doubling to 5 s with each dial that fails, each time after between half and
//! the whole of that. A connection is closed with code 0, by the gateway also with 1 when the worker does not read why it
//! was refused, and with 2 when it has shown no certificate. The reason of a close is for people.
//!
//! # Streams
//! | stream | opened by | carries |
//! |---|---|---|
//! | control, bidirectional, the first | worker | [`hello`], then [`report`]: deltas, digests and [`events`] up, acknowledgements down |
//! | calls, bidirectional, the first that the gateway opens | gateway | [`call`]: calls down, answers up |
//! | a tool, bidirectional, each further one of the gateway's | gateway | [`exec`]: stdin and signals down, output up |
//! | snapshot, unidirectional, one for each | worker | [`report`]: one whole report |
//!
//! At most four streams of each direction are open at a time, and beside them as many as tools may run on a worker
//! ([`EXECS_MAX`]). QUIC tells of a stream with its first bytes, so a worker sees the stream of the calls with the first call,
//! or with the first tool. The control stream and that of the calls stay open as long as the link.
//!
//! # Frames
//! Every stream is a sequence of frames: a length, 4 bytes, big-endian, at most [`FRAME_BYTES_MAX`], then that many
//! bytes of MessagePack: one value, nothing after it. Structures are maps with their fields' names, enumerations are
//! externally tagged (`"unit"`, or `{"variant": …}`), names are in camelCase. Fields a reader does not know are
//! ignored. Lease records are arrays, see [`report::LeaseRow`]. A frame that is too long or does not decode ends the
//! link, but for an unknown call: that is an error of that call only. Values are nested at most [`FRAME_DEPTH_MAX`]
//! deep, ignored ones included.
//!
//! | what | as |
//! |---|---|
//! | ids, names, selectors, notes, keys | strings, of the patterns of SPEC §1 |
//! | a requester that comes through a gateway | `gw:<gateway>:<principal>` or `gw:<gateway>:<principal>/<sub-name>` |
//! | what is asked for | `{"resource": "<id>"}` or `{"select": "<selector>"}` |
//! | mode, door | `exclusive` or `shared`, `acquire` or `request` |
//! | an instant | integer, Unix microseconds of the sender's wall clock |
//! | a span of time | integer, milliseconds |
//! | a fence, a number, an incarnation | integer, unsigned, 64 bits |
//! | a fingerprint | 32 hexadecimal digits; opaque to a worker, which keeps it and reports it |
//! | a run | 16 bytes (`bin`) |
//! | a window | `[start, end]`, two instants |
//! | what is kept of a hold's token | its SHA-256, an array of 32 integers |
//! | a refusal | `{"code", "message", "details"?, "retryAfter"?}`: a code of SPEC §11, text for people, a map, seconds |
//!
//! # An exchange
//! In JSON for the eye; `→` is what the worker sends. The answer and the delta with its effect carry the same number
//! and may overtake each other, because they travel on different streams.
//!
//! ```text
//! control   → {"protocol": {"min": 2, "max": 3}, "version": "0.1.0", "run": <16 bytes>, "incarnation": 1795961304378}
//! control   ← {"accepted": {"protocol": 3, "drained": false, "eventsAfter": null}}
//! snapshot  → {"begin": {"incarnation": 1795961304378, "number": 0}}
//! snapshot  → {"chunk": {"layout": 1, "resources": [{"id": "pixel-8-a", "labels": {"platform": "android"},
//!              "maxShared": 1, "fence": 0, "grantable": true, "drained": false, "queueLength": 0, "reserved": 0,
//!              "nextWindow": null, "leases": []}]}}
//! snapshot  → {"end": {"resources": 1, "waiting": 0, "settled": 0}}
//! control   ← {"taken": {"number": 0}}
//! calls     ← {"id": 1, "call": {"dispatch": {"request": "req_0198…", "attempt": 1, "door": "request",
//!              "requester": "gw:gateway:ci/job-17", "target": {"select": "platform=android"}, "mode": "exclusive",
//!              "ttlMs": 900000, "leaseId": "ad-7f3a", "note": null, "key": null, "fingerprint": "9a4a7c2c…",
//!              "allowShorter": false, "admin": false, "priority": 0.0, "wait": "never", "ticket": null,
//!              "leftOut": {"mode": false, "ttl": false, "priority": false}}}}
//! calls     → {"id": 1, "number": 1, "answer": {"granted": {"resource": "pixel-8-a", "lease": ["ad-7f3a", "req_0198…",
//!              "exclusive", "gw:gateway:ci/job-17", 1795961304378000, 1795961304378000, 900000, 899999,
//!              1795961304378, null, true, null, "9a4a7c2c…"]}}}
//! control   → {"delta": {"incarnation": 1795961304378, "number": 1,
//!              "change": {"resource": {"id": "pixel-8-a", …, "leases": [[…]]}}}}
//! control   → {"digest": {"incarnation": 1795961304378, "number": 1, "digest": 9120443823017441023}}
//! control   → {"events": {"events": [{"id": "evt_…", "seq": 1795961304379, "at": 1795961304378000,
//!              "event": "lease.granted", "owner": "gw:gateway:ci/job-17", "payload": {…}}]}}
//! control   ← {"eventsTaken": {"seq": 1795961304379}}
//! calls     ← {"id": 2, "call": {"renew": {"lease": "ad-7f3a", "fence": null, "ttlMs": null, "allowShorter": false,
//!              "admin": false}}}
//! calls     ← {"id": 3, "call": {"calendar": {"asker": {"requester": "gw:gateway:ci/job-17", "role": "agent"},
//!              "ask": {"holds": "pixel-8-a"}}}}
//! calls     → {"id": 3, "number": 1, "answer": {"calendar": {"holds": []}}}
//! ```
//!
//! [`EXECS_MAX`]: crate::limits::EXECS_MAX
//! [`FRAME_BYTES_MAX`]: crate::limits::FRAME_BYTES_MAX
//! [`FRAME_DEPTH_MAX`]: crate::limits::FRAME_DEPTH_MAX

pub mod calendar;
pub mod call;
pub mod digest;
pub mod events;
pub mod exec;
pub mod frame;
pub mod hello;
pub mod join;
pub mod report;
pub mod requests;
pub mod room;
mod version;

pub use version::{ALPN, PROTOCOL, ProtocolRange, ProtocolVersion};
