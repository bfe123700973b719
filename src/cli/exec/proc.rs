//! What Linux says of processes under `/proc`, as far as no call does.

use std::fs;

use rustix::process::Signal;

/// The signals that this process was started to ignore.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ignored(u64);

impl Ignored {
    /// Those of this process; none where the system does not say.
    pub(super) fn of_process() -> Self {
        Self::read(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn read(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default())
    }

    /// True when that one is ignored.
    pub(super) fn has(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// Where a process stands among others. A number is 0 for one outside of this PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
}

impl Place {
    /// That of this process.
    pub(super) fn own() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// That of another, where it can be seen.
    pub(super) fn of(pid: i32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // The name of the program stands in parentheses and may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut numbers = rest.split_whitespace().skip(1).map_while(|number| number.parse().ok());
        Some(Self { parent: numbers.next()?, group: numbers.next()?, session: numbers.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_the_bit_of_its_number_less_one() {
        let ignored = Ignored::read("Name:\tberth\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001003\n");
        assert!(ignored.has(Signal::HUP) && ignored.has(Signal::INT) && ignored.has(Signal::PIPE));
        assert!(!ignored.has(Signal::QUIT) && !ignored.has(Signal::TERM));
        assert!(!Ignored::read("").has(Signal::HUP) && !Ignored::read("SigIgn:\tx\n").has(Signal::HUP));
    }

    #[test]
    fn a_programs_name_cannot_hide_who_its_parent_is() {
        let place = Place { parent: 42, group: 7, session: 5 };
        assert_eq!(Place::read("7 (a) S 1) R 42 7 5 0 -1"), Some(place));
        assert_eq!(Place::read("1 (a) S 0 0 0 0"), Some(Place { parent: 0, group: 0, session: 0 }));
        assert_eq!(Place::read("7 (a) S 42 7"), None);
        assert_eq!(Place::read("7"), None);
    }
}
