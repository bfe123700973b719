//! The devices of an adb server, as one block of `host:track-devices-l` has them: a line for each, its serial, its state,
//! and what tells it from others as `key:value`.
//!
//! The block is a claim of the server. What makes no sense is left out, line by line; nothing of it makes this fail.

use std::collections::BTreeMap;

use super::serial::Serial;
use super::state::AdbState;

/// Devices of one server; those behind are left out.
pub(super) const DEVICES_MAX: usize = 1_000;
/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 1_024;

/// One device of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// How the server finds it.
    pub state: AdbState,
    /// The server's number for this connection of the device; another after each time that it was plugged in. None where
    /// the server does not say.
    pub transport: Option<u64>,
}

/// Reads a block.
pub(super) fn parse(block: &str) -> BTreeMap<Serial, Listed> {
    let mut devices = BTreeMap::new();
    for line in block.lines() {
        let Some((serial, listed)) = device(line) else { continue };
        if let Some(twin) = devices.get_mut(&serial) {
            *twin = Listed { state: AdbState::Ambiguous, transport: None };
        } else if devices.len() < DEVICES_MAX {
            devices.insert(serial, listed);
        }
    }
    devices
}

fn device(line: &str) -> Option<(Serial, Listed)> {
    if line.len() > LINE_BYTES_MAX {
        return None;
    }
    let (serial, rest) = line.split_once(char::is_whitespace)?;
    let serial = serial.parse().ok()?;
    let rest = rest.trim();
    let mut words = rest.split_whitespace();
    let state = match words.next()? {
        // The only state of more than one word.
        "no" => AdbState::parse(rest),
        word => AdbState::parse(word),
    };
    let transport = words.find_map(|word| word.strip_prefix("transport_id:")?.parse().ok());
    Some((serial, Listed { state, transport }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(state: AdbState, transport: Option<u64>) -> Listed {
        Listed { state, transport }
    }

    #[test]
    fn a_block_of_a_real_server_is_read() {
        let block = "\
127.0.0.1:21555        device product:fake model:Fake_Pixel device:fake transport_id:1
R58M123ABC             unauthorized usb:1-2 transport_id:7
0123456789ABCDEF       no permissions (missing udev rules? user is in the plugdev group); see [http://developer.android.com/tools/device.html] usb:1-3 transport_id:9
emulator-5554          offline
(no serial number)     device usb:1-4 transport_id:11
";
        let expected = [
            ("127.0.0.1:21555", listed(AdbState::Device, Some(1))),
            ("R58M123ABC", listed(AdbState::Unauthorized, Some(7))),
            ("0123456789ABCDEF", listed(AdbState::NoPermissions, Some(9))),
            ("emulator-5554", listed(AdbState::Offline, None)),
        ];
        assert_eq!(parse(block), expected.map(|(serial, listed)| (serial.parse().unwrap(), listed)).into());
    }

    #[test]
    fn two_devices_with_one_serial_are_none_that_can_be_used() {
        let block = "A device transport_id:1\nB device transport_id:2\nA device transport_id:3\n";
        let devices = parse(block);
        assert_eq!(devices[&"A".parse().unwrap()].state, AdbState::Ambiguous);
        assert_eq!(devices[&"B".parse().unwrap()].state, AdbState::Device);
    }

    #[test]
    fn no_more_devices_are_read_than_a_node_can_follow() {
        let block: String = (0..2 * DEVICES_MAX).map(|n| format!("S{n:04} device\n")).collect();
        assert_eq!(parse(&block).len(), DEVICES_MAX);
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out() {
        let block = format!("A device {}\nB device\n", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(parse(&block).into_keys().map(|serial| serial.to_string()).collect::<Vec<_>>(), ["B"]);
    }

    proptest! {
        #[test]
        fn no_block_is_too_strange(block in "(?s).{0,400}") {
            prop_assert!(parse(&block).len() <= DEVICES_MAX);
        }

        #[test]
        fn every_well_formed_line_is_a_device(
            devices in prop::collection::btree_map("[!-'*-,.-~][!-~]{0,30}", ("(device|offline|recovery)", any::<u64>()), 0..20),
        ) {
            let line = |(serial, (state, transport)): (&String, &(String, u64))| {
                format!("{serial:<22} {state} usb:1-1 product:p model:M transport_id:{transport}\n")
            };
            let block: String = devices.iter().map(line).collect();
            let read: Vec<_> = parse(&block).into_iter().map(|(serial, listed)| (serial.to_string(), listed)).collect();
            let expected: Vec<_> = devices
                .into_iter()
                .map(|(serial, (state, transport))| (serial, listed(AdbState::parse(&state), Some(transport))))
                .collect();
            prop_assert_eq!(read, expected);
        }
    }
}
