//! The protocol in bytes: a frame that looks different tomorrow does not fit the peer of today.

mod calendar;
mod claims;
mod exec;
mod golden;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use berth::model::{
    Code, DeviceIdentity, DeviceState, Door, Fence, Fingerprint, LeftOut, Mode, Notice, NoticeKind, Refusal, Selector,
    Target, WaitingFor,
};
use berth::wire::call::{Answer, AnswerFrame, Call, CallFrame, CallFrameId, Dispatch, Granted, Wait};
use berth::wire::events::{EventRow, EventsPage};
use berth::wire::exec::{FromTool, Opened, Opening, ToTool};
use berth::wire::frame::{FrameError, decode, encode};
use berth::wire::hello::{Hello, Welcome};
use berth::wire::report::{
    Changed, Control, Delta, DeviceReport, Digest, LAYOUT, LeaseRow, NextWindow, Part, Report, ResourceReport,
};
use berth::wire::requests::{Place, SettledOutcome, SettledRow, WaitingRow};
use berth::wire::room::{RoomAnswer, RoomAsk, WaiterRow};
use berth::wire::{PROTOCOL, ProtocolVersion};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::sample;

/// What a stream carries.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Hello,
    Welcome,
    Part,
    Report,
    Control,
    Call,
    CallId,
    Answer,
    Opening,
    Opened,
    ToTool,
    FromTool,
}

const KINDS: [Kind; 12] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Part,
    Kind::Report,
    Kind::Control,
    Kind::Call,
    Kind::CallId,
    Kind::Answer,
    Kind::Opening,
    Kind::Opened,
    Kind::ToTool,
    Kind::FromTool,
];

impl Kind {
    /// Reads a payload as a frame of this kind, and writes what it understood.
    fn read(self, payload: &[u8]) -> Result<Bytes, FrameError> {
        fn again<T: DeserializeOwned + Serialize>(payload: &[u8]) -> Result<Bytes, FrameError> {
            encode(&decode::<T>(payload)?)
        }
        match self {
            Kind::Hello => again::<Hello>(payload),
            Kind::Welcome => again::<Welcome>(payload),
            Kind::Part => again::<Part>(payload),
            Kind::Report => again::<Report>(payload),
            Kind::Control => again::<Control>(payload),
            Kind::Call => again::<CallFrame>(payload),
            Kind::CallId => again::<CallFrameId>(payload),
            Kind::Answer => again::<AnswerFrame>(payload),
            Kind::Opening => again::<Opening>(payload),
            Kind::Opened => again::<Opened>(payload),
            Kind::ToTool => again::<ToTool>(payload),
            Kind::FromTool => again::<FromTool>(payload),
        }
    }
}

/// How wide a frame is shown.
const COLUMNS_MAX: usize = 100;

/// One of every frame there is.
fn every_frame() -> Vec<(Kind, Bytes)> {
    let of = |kind, frame| (kind, frame);
    let mut frames = vec![of(Kind::Hello, bytes(&hello()))];
    frames.extend(welcomes().iter().map(|welcome| of(Kind::Welcome, bytes(welcome))));
    frames.extend(parts().iter().map(|part| of(Kind::Part, bytes(part))));
    frames.extend(reports().iter().map(|report| of(Kind::Report, bytes(report))));
    frames.extend(controls().iter().map(|control| of(Kind::Control, bytes(control))));
    frames.extend(calls().into_iter().map(|call| of(Kind::Call, bytes(&CallFrame { id: 7, call }))));
    frames
        .extend(answers().into_iter().map(|answer| of(Kind::Answer, bytes(&AnswerFrame { id: 7, number: 9, answer }))));
    frames.push(of(Kind::Opening, bytes(&exec::opening())));
    frames.extend(exec::opened().iter().map(|opened| of(Kind::Opened, bytes(opened))));
    frames.extend(exec::to_tool().iter().map(|frame| of(Kind::ToTool, bytes(frame))));
    frames.extend(exec::from_tool().iter().map(|frame| of(Kind::FromTool, bytes(frame))));
    frames
}

fn bytes<T: Serialize>(value: &T) -> Bytes {
    encode(value).unwrap()
}

/// A frame to read: texts as they are, everything else value by value as hexadecimal digits in `‹›`; a long one goes on
/// in indented lines.
fn shown(mut frame: &[u8]) -> String {
    let mut shown = String::new();
    let mut column = 0;
    while let Some(&marker) = frame.first() {
        let (value, text) = lengths(marker, frame);
        let (value, rest) = frame.split_at(value.min(frame.len()));
        let (text, rest) = rest.split_at(text.min(rest.len()));
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let width = hex.len() + text.len() + 1;
        column += width;
        if column > COLUMNS_MAX {
            shown.push_str("\n  ");
            column = width + 2;
        }
        write!(shown, "‹{hex}›{}", String::from_utf8_lossy(text)).unwrap();
        frame = rest;
    }
    shown.replace("›‹", " ")
}

/// How many bytes a MessagePack value has up to its text, and how many its text has.
fn lengths(marker: u8, frame: &[u8]) -> (usize, usize) {
    let byte = |at: usize| usize::from(frame.get(at).copied().unwrap_or(0));
    match marker {
        0xa0..=0xbf => (1, usize::from(marker & 0x1f)),
        0xc4 => (2 + byte(1), 0),
        0xcc | 0xd0 => (2, 0),
        0xcd | 0xd1 | 0xdc | 0xde => (3, 0),
        0xce | 0xd2 => (5, 0),
        0xcb | 0xcf | 0xd3 => (9, 0),
        0xd9 => (2, byte(1)),
        0xda => (3, byte(1) << 8 | byte(2)),
        _ => (1, 0),
    }
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        run: sample::text("6b1f0d3e-31a6-4b0c-8a41-0e6b3c6f7a10"),
        incarnation: 1_767_225_600_000,
    }
}

fn welcomes() -> [Welcome; 3] {
    [
        Welcome::Accepted { protocol: ProtocolVersion::V2, drained: true, events_after: Some(1_767_225_600_007) },
        Welcome::Incompatible { protocol: PROTOCOL },
        Welcome::Refused { why: "not on the roster".to_owned() },
    ]
}

fn row() -> LeaseRow {
    let mut lease = sample::lease("ad-7f3a", "pixel-8-a", 1_767_225_600_000);
    lease.request_id = sample::request(1);
    lease.holder = sample::text("gw:gateway:ci/job-17");
    lease.note = Some(sample::text("nightly"));
    lease.idempotency_key = Some(sample::text("k-1"));
    LeaseRow::new(&lease, Duration::from_millis(59_000))
}

/// A row of a lease that a booking has cut.
fn cut_row() -> LeaseRow {
    let mut lease = sample::lease("lse_1", "pixel-8-a", 1);
    lease.asked_ttl = Some(Duration::from_secs(900));
    LeaseRow::new(&lease, Duration::ZERO)
}

/// A row with as little in it as there may be.
fn bare_row() -> LeaseRow {
    let mut lease = sample::lease("lse_1", "pixel-8-a", 1);
    lease.request_id = sample::request(2);
    lease.mode = Mode::Shared;
    lease.id_chosen_by_requester = false;
    LeaseRow::new(&lease, Duration::ZERO)
}

fn report() -> ResourceReport {
    ResourceReport {
        id: sample::text("pixel-8-a"),
        labels: [(sample::text("os"), sample::text("15")), (sample::text("platform"), sample::text("android"))].into(),
        max_shared: 2,
        fence: Fence(1_767_225_600_000),
        grantable: true,
        drained: false,
        queue_length: 0,
        reserved: 1,
        next_window: Some(NextWindow {
            holder: sample::text("gw:gateway:ci/job-17"),
            starts_in_ms: 0,
            ends_in_ms: 60_000,
        }),
        device: None,
        environment: Default::default(),
        identity: None,
        failure: None,
        prepared_ms: 0,
        leases: vec![row(), bare_row()],
    }
}

/// A device that an adb server sees, as it is made ready for a request of the gateway's.
fn device() -> ResourceReport {
    ResourceReport {
        device: Some(DeviceReport {
            state: DeviceState::Preparing,
            reason: Some("made ready for its next lease".to_owned()),
            ends_in_ms: Some(60_000),
            request: Some(sample::request(1)),
        }),
        environment: environment(),
        identity: Some(DeviceIdentity { driver: "adb".to_owned(), serial: "emulator-5554".to_owned() }),
        failure: None,
        prepared_ms: 61_000,
        leases: vec![],
        next_window: None,
        ..report()
    }
}

fn environment() -> BTreeMap<String, String> {
    [("ANDROID_SERIAL".to_owned(), "emulator-5554".to_owned())].into()
}

fn waiting() -> WaitingRow {
    WaitingRow {
        request: sample::request(3),
        requester: sample::text("gw:gateway:ci/job-17"),
        resource: sample::text("pixel-8-a"),
        mode: Mode::Exclusive,
        attended: true,
        lease_id: Some(sample::text("ad-7f3a")),
        key: Some(sample::text("k-1")),
        fingerprint: dispatch().fingerprint,
        joined_at: Timestamp::from_second(1_767_225_600).unwrap(),
    }
}

fn settled(outcome: SettledOutcome) -> SettledRow {
    SettledRow {
        request: sample::request(4),
        requester: sample::text("gw:gateway:ci/job-17"),
        key: None,
        fingerprint: dispatch().fingerprint,
        created_at: Timestamp::from_second(1_767_225_600).unwrap(),
        ended_ms_ago: Some(300),
        outcome,
    }
}

fn outcomes() -> [SettledOutcome; 3] {
    let granted = SettledOutcome::Granted {
        resource: sample::text("pixel-8-a"),
        lease: row(),
        expires_at: Timestamp::from_second(1_767_225_660).unwrap(),
        labels: [(sample::text("os"), sample::text("15"))].into(),
        environment: environment(),
    };
    let failed = SettledOutcome::Failed(Refusal::new(Code::DeviceFailed, "not made ready"));
    [granted, failed, SettledOutcome::Cancelled]
}

fn parts() -> [Part; 4] {
    [
        Part::Begin { incarnation: 1_767_225_600_000, number: 300 },
        Part::Chunk { layout: LAYOUT, resources: vec![report()] },
        Part::Requests { waiting: vec![waiting()], settled: outcomes().map(settled).to_vec() },
        Part::End { resources: 1, waiting: 1, settled: 3 },
    ]
}

/// What goes up the control stream.
fn reports() -> Vec<Report> {
    let (incarnation, number) = (1_767_225_600_000, 301);
    let resource =
        Changed::Resource(ResourceReport { leases: vec![], grantable: false, next_window: None, ..report() });
    let changes = [
        resource,
        Changed::Resource(device()),
        Changed::Waiting(waiting()),
        Changed::Settled(settled(SettledOutcome::Cancelled)),
        Changed::Gone(sample::request(3)),
        Changed::ResourceGone(sample::text("pixel-8-a")),
    ];
    let mut reports: Vec<Report> =
        changes.into_iter().map(|change| Report::Delta(Delta { incarnation, number, change })).collect();
    reports.push(Report::Digest(Digest { incarnation, number, digest: u64::MAX }));
    let event = EventRow {
        id: sample::text("evt_00000000-0000-4000-8000-000000000009"),
        seq: 1_767_225_600_001,
        at: Timestamp::from_second(1_767_225_600).unwrap(),
        event: "lease.expired".to_owned(),
        owner: Some(sample::text("gw:gateway:ci/job-17")),
        payload: serde_json::from_str(r#"{"leaseId": "ad-7f3a", "fence": 7}"#).unwrap(),
    };
    reports.push(Report::Events(EventsPage { events: vec![event] }));
    reports
}

fn controls() -> [Control; 3] {
    [Control::Taken { number: 300 }, Control::Resync, Control::EventsTaken { seq: 1_767_225_600_001 }]
}

fn dispatch() -> Dispatch {
    let target = Target::Resource(sample::text("pixel-8-a"));
    let chosen = sample::text("ad-7f3a");
    Dispatch {
        request: sample::request(1),
        attempt: 1,
        door: Door::Acquire,
        requester: sample::text("gw:gateway:ci/job-17"),
        fingerprint: Fingerprint::of(&target, Mode::Exclusive, Some(&chosen)),
        target,
        mode: Mode::Exclusive,
        ttl_ms: 60_000,
        lease_id: Some(chosen),
        note: Some(sample::text("nightly")),
        key: Some(sample::text("k-1")),
        allow_shorter: true,
        admin: false,
        priority: 5.5.try_into().unwrap(),
        wait: Wait::Attended { timeout_ms: Some(60_000) },
        ticket: Some(sample::text("e30.e30")),
        left_out: LeftOut { mode: true, ttl: false, priority: false },
        not_on: None,
    }
}

/// A dispatch by selector with nothing that may be left out.
fn bare_dispatch() -> Dispatch {
    let target = Target::Select("platform=android,os>=14".parse::<Selector>().unwrap());
    Dispatch {
        fingerprint: Fingerprint::of(&target, Mode::Shared, None),
        target,
        door: Door::Request,
        mode: Mode::Shared,
        lease_id: None,
        note: None,
        key: None,
        allow_shorter: false,
        admin: true,
        priority: Default::default(),
        wait: Wait::Never,
        ticket: None,
        left_out: LeftOut::default(),
        not_on: Some(sample::text("pixel-8-b")),
        ..dispatch()
    }
}

fn calls() -> Vec<Call> {
    let lease = || sample::text("ad-7f3a");
    vec![
        Call::Dispatch(dispatch()),
        Call::Dispatch(bare_dispatch()),
        Call::Settle { request: sample::request(1), attempt: 2 },
        Call::Renew { lease: lease(), fence: Some(Fence(5)), ttl_ms: Some(60_000), allow_shorter: true, admin: false },
        Call::Renew { lease: lease(), fence: None, ttl_ms: None, allow_shorter: false, admin: true },
        Call::Release { lease: lease(), fence: Some(Fence(5)) },
        Call::Dispatch(Dispatch { wait: Wait::Unattended, ..dispatch() }),
        Call::Cancel { request: sample::request(1) },
        Call::Look { request: sample::request(1) },
        Call::Room(RoomAsk::Waiters { resource: sample::text("pixel-8-a"), after: 2_000 }),
        Call::Room(RoomAsk::Leave { resource: sample::text("pixel-8-a"), requester: sample::text("gw:gateway:ci") }),
        Call::Room(RoomAsk::Drain { resource: sample::text("pixel-8-a"), drained: true }),
        Call::Room(RoomAsk::Clear { resource: sample::text("pixel-8-a") }),
        Call::DrainWorker { drained: false },
        Call::Elsewhere { resources: [(sample::text("pixel-8-a"), sample::text("rack-2"))].into() },
    ]
    .into_iter()
    .chain(calendar::asks().into_iter().map(|ask| Call::Calendar(calendar::call(ask))))
    .collect()
}

fn place() -> Place {
    Place {
        request: sample::request(3),
        resource: sample::text("pixel-8-a"),
        mode: Mode::Exclusive,
        position: 2,
        waiting_for: Some(WaitingFor::Leased),
        until_ms: Some(60_000),
        ticket: sample::text("e30.e30"),
    }
}

fn waiter() -> WaiterRow {
    WaiterRow {
        holder: sample::text("ci"),
        joined_at: Timestamp::from_second(1_767_225_600).unwrap(),
        last_seen: Timestamp::from_second(1_767_225_660).unwrap(),
        mode: Mode::Shared,
        priority: 1.0.try_into().unwrap(),
    }
}

fn answers() -> Vec<Answer> {
    let granted = || Granted {
        resource: sample::text("pixel-8-a"),
        lease: row(),
        worked_ms: 0,
        notices: Vec::new(),
        environment: BTreeMap::new(),
    };
    let made_ready = || Granted { worked_ms: 61_000, environment: environment(), ..granted() };
    let notice = Notice {
        at: Timestamp::from_second(1_767_225_600).unwrap(),
        event: NoticeKind::DeviceUnhealthy,
        message: "health exited with 1".to_owned(),
    };
    let failed = Refusal::new(Code::DeviceFailed, "pixel-8-a could not be made ready").with("resourceId", "pixel-8-a");
    let refusal = Refusal::new(Code::LeaseIdTaken, "lease ID ad-7f3a is already in use").with("leaseId", "ad-7f3a");
    let busy = Refusal::new(Code::QueueFull, "ask again").retry_after(Duration::from_secs(1));
    vec![
        Answer::Granted(granted()),
        Answer::Granted(made_ready()),
        Answer::Settled(Some(granted())),
        Answer::Settled(None),
        Answer::Renewed(granted()),
        Answer::Renewed(Granted { notices: vec![notice], ..granted() }),
        Answer::Released { admitted: Some(sample::text("gw:gateway:ci/job-18")) },
        Answer::Waiting(place()),
        Answer::Cancelled,
        Answer::Room(RoomAnswer::Waiters { waiters: vec![waiter()], more: true }),
        Answer::Room(RoomAnswer::Left(true)),
        Answer::Room(RoomAnswer::Resource(ResourceReport { leases: vec![], next_window: None, ..report() })),
        Answer::Drained(true),
        Answer::Elsewhere,
        Answer::Refused(failed),
        Answer::Refused(refusal),
        Answer::Refused(busy),
    ]
    .into_iter()
    .chain(calendar::answers().into_iter().map(Answer::Calendar))
    .collect()
}
