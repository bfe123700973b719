//! How an adb server finds a device, in its words and in ours.

/// The longest word for a state that is shown, in characters.
const STATE_CHARS_MAX: usize = 64;

/// The state of a device at an adb server. Only [`AdbState::Device`] can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdbState {
    /// It is up, and takes commands.
    Device,
    /// It is known, and does not answer.
    Offline,
    /// It does not know the key of this machine.
    Unauthorized,
    /// It is asked whether it knows the key.
    Authorizing,
    /// The server is about to reach it.
    Connecting,
    /// It runs its recovery system.
    Recovery,
    /// It waits for an update.
    Sideload,
    /// It runs its rescue system.
    Rescue,
    /// It is in its boot loader.
    Bootloader,
    /// This machine may not open its USB device.
    NoPermissions,
    /// Two devices say that they have this serial.
    Ambiguous,
    /// A word that is not known here; bounded, without control characters.
    Other(String),
}

impl AdbState {
    /// From what a server says. What follows `no permissions` is the server's advice.
    pub(super) fn parse(word: &str) -> Self {
        match word.trim() {
            "device" => AdbState::Device,
            "offline" => AdbState::Offline,
            "unauthorized" => AdbState::Unauthorized,
            "authorizing" => AdbState::Authorizing,
            "connecting" => AdbState::Connecting,
            "recovery" => AdbState::Recovery,
            "sideload" => AdbState::Sideload,
            "rescue" => AdbState::Rescue,
            "bootloader" => AdbState::Bootloader,
            other if other.starts_with("no permissions") => AdbState::NoPermissions,
            other => AdbState::Other(other.chars().filter(|c| !c.is_control()).take(STATE_CHARS_MAX).collect()),
        }
    }

    /// Why the device cannot be used, and what to do: the end of a sentence that begins with the device. None when it can.
    pub(super) fn trouble(&self) -> Option<String> {
        let said = match self {
            AdbState::Device => return None,
            AdbState::Offline => "is offline: unplug it and plug it in again, or run `adb reconnect offline`",
            AdbState::Unauthorized => "does not trust this machine yet: unlock it and allow USB debugging for its key",
            AdbState::Authorizing => "is being asked whether it trusts this machine: it takes a moment",
            AdbState::Connecting => "is being connected: it takes a moment",
            AdbState::Recovery => "is in recovery: boot it with `adb reboot`",
            AdbState::Sideload => "waits for an update to be sideloaded: send it, or boot it with `adb reboot`",
            AdbState::Rescue => "is in rescue mode: boot it with `adb reboot`",
            AdbState::Bootloader => "is in its boot loader: boot it with `fastboot reboot`",
            AdbState::NoPermissions => {
                "may not be opened by this user: give its USB device to this user by a udev rule, and plug it in again"
            }
            AdbState::Ambiguous => "has a serial that another device has too: unplug one of them",
            AdbState::Other(word) => {
                return Some(format!("is in the state {word:?} for adb: look at `adb devices -l`"));
            }
        };
        Some(said.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_is_up_has_no_trouble_and_every_other_is_told_what_to_do() {
        assert_eq!(AdbState::parse("device").trouble(), None);
        let words = "offline unauthorized authorizing connecting recovery sideload rescue bootloader";
        for word in words.split(' ').chain(["no permissions (user in plugdev group; are your udev rules wrong?)"]) {
            let state = AdbState::parse(word);
            assert!(!matches!(state, AdbState::Other(_)), "{word}");
            assert!(state.trouble().is_some_and(|trouble| trouble.contains(": ")), "{word}");
        }
    }

    #[test]
    fn a_word_that_is_not_known_is_shown_without_what_a_terminal_would_obey() {
        let long = format!("\u{1b}[31m{}", "x".repeat(1_000));
        let AdbState::Other(word) = AdbState::parse(&long) else { panic!("{long} is known") };
        assert_eq!(word, format!("[31m{}", "x".repeat(STATE_CHARS_MAX - 4)));
    }
}
