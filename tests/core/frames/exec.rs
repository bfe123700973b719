//! A tool on a stream of its own: its opening, what goes to it and what comes from it.

use berth::model::{ExecSignal, ToolArgs};
use berth::wire::exec::{ExecCall, FromTool, Opened, Opening, ToTool};

use super::*;

pub fn opening() -> Opening {
    let args = vec!["shell".to_owned(), "echo ü".to_owned()];
    Opening::Exec(ExecCall {
        requester: sample::text("gw:gateway:ci/job-17"),
        lease: sample::text("ad-7f3a"),
        fence: Some(Fence(1_767_225_600_000)),
        tool: sample::text("adb"),
        args: ToolArgs::try_from(args).unwrap(),
    })
}

pub fn opened() -> [Opened; 2] {
    [Opened::Started, Opened::Refused(Refusal::new(Code::BadRequest, "no such tool"))]
}

pub fn to_tool() -> [ToTool; 4] {
    let bytes = Bytes::from_static(b"\0in");
    [ToTool::Stdin(bytes), ToTool::Eof, ToTool::Signal(ExecSignal::Int), ToTool::Ack(65_536)]
}

pub fn from_tool() -> [FromTool; 5] {
    [
        FromTool::Stdout(Bytes::from_static(b"out")),
        FromTool::Stderr(Bytes::new()),
        FromTool::Ack(1),
        FromTool::Exit(137),
        FromTool::Failed(Refusal::new(Code::ExecTimeout, "it took too long")),
    ]
}

#[test]
fn a_lease_names_no_more_arguments_than_a_program_is_given() {
    let Opening::Exec(call) = opening();
    let frame = |args: Vec<String>| {
        #[derive(Serialize)]
        struct Claim {
            requester: &'static str,
            lease: &'static str,
            fence: Option<u64>,
            tool: &'static str,
            args: Vec<String>,
        }
        let claim = Claim { requester: "gw:gateway:ci/job-17", lease: "ad-7f3a", fence: None, tool: "adb", args };
        bytes(&std::collections::BTreeMap::from([("exec", claim)]))
    };
    let fits = decode::<Opening>(&frame(call.args.as_slice().to_vec())).unwrap();
    assert_eq!(fits, Opening::Exec(ExecCall { fence: None, ..call }));
    for args in [vec![String::new(); 257], vec!["x".repeat(33 * 1024)], vec!["\0".to_owned()]] {
        assert!(decode::<Opening>(&frame(args)).is_err());
    }
}
