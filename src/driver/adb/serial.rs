//! What an adb server calls a device.

use std::fmt;
use std::str::FromStr;

/// The longest serial that is taken from a server, in bytes. It fits a label.
const SERIAL_BYTES_MAX: usize = 128;

/// The serial of a device: 1 to 128 printable ASCII characters without a blank, as an argument of `adb -s` may be written.
/// It does not begin with `-`, which would be an option there, nor with `(`, which begins adb's words for a device without
/// a serial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(String);

/// A text that is no serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a serial is 1 to 128 printable ASCII characters without a blank, and begins neither with '-' nor with '('")]
pub struct InvalidSerial;

impl Serial {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Serial {
    type Err = InvalidSerial;

    fn from_str(text: &str) -> Result<Self, InvalidSerial> {
        let well = text.len() <= SERIAL_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !matches!(text.bytes().next(), None | Some(b'-' | b'('));
        if well { Ok(Self(text.to_owned())) } else { Err(InvalidSerial) }
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_what_can_stand_behind_adb_s() {
        for good in ["emulator-5554", "127.0.0.1:5555", "R58M123ABC", "adb-1._adb-tls-connect._tcp", &"x".repeat(128)] {
            assert_eq!(good.parse::<Serial>().map(|serial| serial.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-s", "(no", "a b", "a\n", "ü", &"x".repeat(129)] {
            assert_eq!(bad.parse::<Serial>(), Err(InvalidSerial), "{bad:?}");
        }
    }
}
