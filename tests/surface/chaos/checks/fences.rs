//! I2: a fence never repeats or falls.

use std::collections::HashMap;

use crate::chaos::grants::by_resource;
use crate::chaos::history::{Answer, Call, Fact, Hold, Run};
use crate::chaos::log::by_resource as logged_by_resource;

/// By what holders were told, and by the workers' logs.
pub fn grow(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut tries: HashMap<&Hold, (u32, u64)> = HashMap::new();
    for entry in &run.history {
        let (Call::Ask(_) | Call::Poll(_), Answer::Leased(lease)) = (&entry.call, &entry.answer) else { continue };
        let first = *tries.entry(&lease.hold).or_insert((entry.client, entry.attempt));
        if first != (entry.client, entry.attempt) {
            found.push(format!("clients {} and {} were both told of {:?}", first.0, entry.client, lease.hold));
        }
    }
    for grants in by_resource(&run.history) {
        // By fence: whoever has the higher one cannot have been told before the other asked.
        for (lower, higher) in grants.iter().zip(&grants[1..]) {
            if higher.told < lower.asked {
                found.push(format!("{:?} was granted before {:?}", higher.hold, lower.hold));
            }
        }
    }
    for log in logged_by_resource(&run.log) {
        let granted: Vec<_> = log.into_iter().filter(|line| line.fact == Fact::Granted).collect();
        for (former, next) in granted.iter().zip(granted.iter().skip(1)) {
            if next.hold.fence <= former.hold.fence {
                found.push(format!("the log of {} grants {:?} after {:?}", next.worker, next.hold, former.hold));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::story::{is_caught, passes};

    #[test]
    fn a_fence_that_falls_is_caught() {
        passes(grow, &Run::default().takes(1, 10, 0..20, 100).takes(2, 200, 200..220, 300));
        is_caught(grow, &Run::default().takes(1, 200, 0..20, 100).takes(2, 10, 200..220, 300), "was granted before");
    }

    #[test]
    fn a_fence_that_two_were_told_is_caught() {
        is_caught(grow, &Run::default().takes(1, 10, 0..20, 100).takes(2, 10, 200..220, 300), "clients 1 and 2");
    }

    #[test]
    fn a_log_whose_fences_do_not_grow_is_caught() {
        let run = Run::default().logs(Fact::Granted, 10, 0, "a").logs(Fact::Released, 10, 5, "a");
        passes(grow, &run.clone().logs(Fact::Granted, 11, 6, "b"));
        is_caught(grow, &run.logs(Fact::Granted, 10, 6, "b"), "the log of rack-1 grants");
    }
}
