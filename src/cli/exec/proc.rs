//! What Linux says of processes under `/proc`, as far as no call does.

use std::fs;

use rustix::process::{Pid, Signal};

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

/// The parent of a process, where it can be seen.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parent_in(stat: &str) -> Option<Pid> {
    // The name of the program stands in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
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
        assert_eq!(parent_in("7 (a) S 1) R 42 7 7 0"), Pid::from_raw(42));
        assert_eq!(parent_in("7 (a) S 0 7 7 0"), None);
        assert_eq!(parent_in("7"), None);
    }
}
