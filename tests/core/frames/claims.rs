//! What arrives is a claim: a reader survives whatever it is sent, and understands what a newer peer adds.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// An entry of a map that no version knows: a name and something nested.
const ENTRY_OF_2030: &[u8] = b"\xacfromThe2030s\x82\xa1a\x93\x01\xc0\xc3\xa1b\xcb\x3f\xf0\0\0\0\0\0\0";

/// The frame with one more entry in each map that can have one, one map at a time: all but the outermost of an
/// enumeration, whose one entry is its variant, and those whose names are free.
fn with_unknown_fields(kind: Kind, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut widened = Vec::new();
    for (at, byte) in frame.iter().enumerate().filter(|(_, byte)| (0x80..0x8f).contains(*byte)) {
        let mut wider = frame.to_vec();
        wider[at] = byte + 1;
        wider.splice(at + 1..at + 1, ENTRY_OF_2030.iter().copied());
        // A byte within a number or a text looks like a map but is none; then this is no frame at all.
        if kind.read(&wider).is_ok_and(|understood| understood == frame) {
            widened.push(wider);
        }
    }
    widened
}

#[test]
fn fields_of_a_newer_version_are_ignored() {
    let structures = |kind: Kind, frame: &[u8]| with_unknown_fields(kind, frame).len();
    for (kind, frame) in every_frame() {
        let expected = match kind {
            // Itself and its range of versions.
            Kind::Hello => 2,
            Kind::Report => 1,
            Kind::Welcome | Kind::Part | Kind::Control | Kind::Opened | Kind::ToTool | Kind::FromTool => continue,
            Kind::Call => 2,
            Kind::CallId | Kind::Answer | Kind::Opening => 1,
        };
        assert!(structures(kind, &frame) >= expected, "{kind:?} {}", shown(&frame));
    }
    let [accepted, incompatible, refused] = welcomes().map(|welcome| bytes(&welcome));
    assert_eq!([&accepted, &incompatible, &refused].map(|frame| structures(Kind::Welcome, frame)), [1, 2, 1]);
    let of_parts = parts().map(|part| structures(Kind::Part, &bytes(&part)));
    assert!(of_parts.iter().zip([1, 3, 5, 1]).all(|(found, least)| *found >= least), "{of_parts:?}");
    let of_controls = controls().map(|control| structures(Kind::Control, &bytes(&control)));
    assert_eq!(of_controls, [1, 0, 1]);
}

#[test]
fn an_unknown_call_is_no_call_but_tells_whose_answer_is_due() {
    for call in [&b"\xa9teleport1"[..], b"\x81\xa8teleport\x81\xa2to\xa4moon", b"\xc0"] {
        let frame = [b"\x82\xa2id\xcd\x01\x2c\xa4call", call].concat();
        assert!(decode::<CallFrame>(&frame).is_err());
        assert_eq!(decode::<CallFrameId>(&frame).unwrap().id, 300);
    }
}

#[test]
fn nothing_may_follow_the_value_of_a_frame() {
    for (kind, frame) in every_frame() {
        for more in [&b"\xc0"[..], &frame] {
            let longer = [&frame, more].concat();
            let refused = kind.read(&longer);
            assert!(
                matches!(refused, Err(FrameError::Trailing(bytes)) if bytes == more.len()),
                "{kind:?}: {refused:?}"
            );
        }
    }
}

#[test]
fn a_frame_that_ends_too_soon_is_refused_wherever_it_is_cut() {
    for (kind, frame) in every_frame() {
        for end in 0..frame.len() {
            assert!(kind.read(&frame[..end]).is_err(), "{kind:?} cut at {end}");
        }
    }
}

#[test]
fn a_lease_row_has_thirteen_columns_and_one_more_if_it_was_cut() {
    let (whole, cut) = (bytes(&row()), bytes(&cut_row()));
    assert_eq!((whole[0], cut[0]), (0x9d, 0x9e));
    let asked = Some(Duration::from_secs(900));
    let read = |frame: &[u8]| decode::<LeaseRow>(frame).unwrap().into_lease(&sample::text("pixel-8-a")).0.asked_ttl;
    assert_eq!((read(&whole), read(&cut)), (None, asked));
    let mut unset = whole.to_vec();
    unset[0] = 0x9e;
    unset.push(0xc0);
    assert_eq!(read(&unset), None);
    let mut short = whole[..whole.len() - 33].to_vec();
    short[0] = 0x9c;
    let mut long = cut.to_vec();
    long[0] = 0x9f;
    long.push(0xc0);
    for other in [short, long] {
        assert!(decode::<LeaseRow>(&other).is_err(), "{}", shown(&other));
    }
}

/// What a gateway of before bookings sends is still read.
#[test]
fn a_call_without_what_came_later_is_read_with_its_defaults() {
    let without = |frame: &[u8], map: usize, field: &[u8]| {
        let at = frame.windows(field.len()).position(|window| window == field).unwrap();
        let mut shorter = frame.to_vec();
        shorter.drain(at..at + field.len() + 1);
        shorter[map] -= 1;
        shorter
    };
    let frame = bytes(&calls()[3]);
    let map = frame.iter().position(|byte| *byte == 0x85).unwrap();
    let older = without(&without(&frame, map, b"\xacallowShorter"), map, b"\xa5admin");
    assert!(matches!(decode::<Call>(&older).unwrap(), Call::Renew { allow_shorter: false, admin: false, .. }));
    let frame = bytes(&dispatch());
    // A map of more than 15 entries has their number in the third byte.
    let older = without(&without(&frame, 2, b"\xacallowShorter"), 2, b"\xa5admin");
    let read = decode::<Dispatch>(&older).unwrap();
    assert!(!read.allow_shorter && !read.admin);
}

#[test]
fn a_row_never_claims_more_time_than_the_width_of_its_lease() {
    let lease = sample::lease("mine", "board", 1);
    let row = LeaseRow::new(&lease, Duration::from_secs(1_000_000));
    assert_eq!(row.into_lease(&lease.resource_id), (lease, Duration::from_secs(60)));
}

/// Every text of the wire is checked when it is read, by the same pattern as anywhere else.
#[test]
fn a_word_that_is_out_of_its_bounds_is_refused_wherever_it_stands() {
    let dispatched = bytes(&CallFrame { id: 7, call: Call::Dispatch(dispatch()) });
    for (good, bad) in [
        ("ad-7f3a", "ad.7f3a"),
        ("pixel-8-a", "pixel 8 a"),
        ("gw:gateway:ci/job-17", "gw:gateway:ci/job 17"),
        ("exclusive", "exclusivE"),
        ("nightly", "night\u{7}y"),
        ("acquire", "acquirE"),
    ] {
        let text = |text: &str| text.as_bytes().to_vec();
        let at = dispatched.windows(good.len()).position(|window| window == good.as_bytes()).unwrap();
        let mut frame = dispatched.to_vec();
        frame.splice(at..at + good.len(), text(bad));
        assert!(decode::<CallFrame>(&frame).is_err(), "{bad:?}");
        assert_eq!(decode::<CallFrameId>(&frame).unwrap().id, 7, "the call is refused, not the link");
    }
}

/// A megabyte of opening brackets is refused before it uses up a stack, a length that lies before it uses up memory.
#[test]
fn a_frame_cannot_hurt_its_reader() {
    let head = b"\x82\xa6future";
    for open in [&b"\x91"[..], b"\x81\xa1a", b"\xdd\0\0\0\x01", b"\x81\x91"] {
        let deep = [head, open.repeat(berth::limits::FRAME_BYTES_MAX / open.len()).as_slice()].concat();
        for kind in KINDS {
            assert!(kind.read(&deep).is_err(), "{kind:?}");
        }
    }
    for lie in [&b"\xdb\xff\xff\xff\xff"[..], b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
    {
        for before in [&head[..], b"", b"\x81\xa5chunk\x82\xa6layout\x01\xa9resources"] {
            let lying = [before, lie].concat();
            for kind in KINDS {
                assert!(kind.read(&lying).is_err(), "{kind:?}");
            }
        }
    }
}

/// A frame with a few bytes replaced, removed or inserted.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3u8);
    let frame = prop::sample::select(every_frame()).prop_map(|(_, frame)| frame.to_vec());
    (frame, prop::collection::vec(change, 1..6)).prop_map(|(mut frame, changes)| {
        for (at, byte, how) in changes {
            let at = at.index(frame.len());
            match how {
                0 => frame[at] = byte,
                1 => frame.insert(at, byte),
                _ if frame.len() > 1 => drop(frame.remove(at)),
                _ => {}
            }
        }
        frame
    })
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 4_096, ..Config::default() })]

    #[test]
    fn a_reader_survives_any_bytes(payload in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mutated()]) {
        for kind in KINDS {
            // What it understands it can also say again.
            if let Ok(understood) = kind.read(&payload) {
                prop_assert_eq!(kind.read(&understood).unwrap(), understood);
            }
        }
    }
}
