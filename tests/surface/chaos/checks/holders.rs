//! I1: never two live leases on a resource. I3: no grant before the former lease ended.

use crate::chaos::grants::{Grant, by_resource};
use crate::chaos::history::{Fact, Logged, Run, SLACK};
use crate::chaos::log::by_resource as logged_by_resource;

/// I1, by what holders were told: each may use the resource from its answer to the deadline it knows, or to the moment
/// at which it gives the lease back.
pub fn one_at_a_time(run: &Run) -> Vec<String> {
    let both = |one: &Grant, other: &Grant| {
        let (from, to) = (one.told.max(other.told), one.safe_until().min(other.safe_until()));
        (from + SLACK < to).then(|| {
            let (one, other) = (clients(one), clients(other));
            format!("{one} and {other} both hold it from {from:?} to {to:?}")
        })
    };
    let mut found = Vec::new();
    for grants in by_resource(&run.history) {
        for (index, one) in grants.iter().enumerate() {
            // Fences follow time: the next few are enough, and one is when all is well.
            found.extend(grants[index + 1..].iter().take(8).filter_map(|other| both(one, other)));
        }
    }
    found
}

fn clients(grant: &Grant) -> String {
    format!("client {} by fence {} of {}", grant.client, grant.hold.fence, grant.hold.resource)
}

/// I3, by the words of the workers: when each lease was granted, against the deadline that the former holder knows,
/// and their own logs, in which an end stands between two grants.
pub fn one_after_the_other(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for grants in by_resource(&run.history) {
        for (former, next) in grants.iter().zip(&grants[1..]) {
            if next.granted + SLACK < former.safe_until() {
                let (former, until) = (clients(former), former.safe_until());
                found.push(format!(
                    "{} is granted at {:?}, and {former} lives to {until:?}",
                    clients(next),
                    next.granted
                ));
            }
        }
    }
    for log in logged_by_resource(&run.log) {
        let mut holder: Option<&Logged> = None;
        for line in log {
            match line.fact {
                Fact::Granted => {
                    if let Some(former) = holder.replace(line) {
                        found.push(format!("the log of {} grants {:?} over {:?}", line.worker, line.hold, former.hold));
                    }
                }
                Fact::Released | Fact::Expired => {
                    if holder.take().is_none_or(|held| held.hold != line.hold) {
                        found.push(format!("the log of {} ends {:?}, which nobody has", line.worker, line.hold));
                    }
                }
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
    fn two_who_were_told_that_they_hold_it_are_caught() {
        let run = Run::default().takes(1, 10, 0..20, 1000);
        passes(one_at_a_time, &run.clone().takes(2, 1200, 1200..1220, 2000));
        passes(one_at_a_time, &run.clone().releases(1, 10, 100..500).takes(2, 200, 200..220, 2000));
        is_caught(one_at_a_time, &run.clone().takes(2, 500, 500..520, 2000), "both hold it from 520ms to 1s");
        let renewed = run.renews(1, 10, 900..910, 1900);
        is_caught(one_at_a_time, &renewed.takes(2, 1200, 1200..1220, 2000), "to 1.9s");
    }

    #[test]
    fn a_grant_within_the_former_lease_is_caught_though_it_was_told_later() {
        let run = Run::default().takes(1, 10, 0..20, 1000);
        passes(one_after_the_other, &run.clone().takes(2, 1200, 1200..1220, 2000));
        // It took a second to tell.
        is_caught(one_after_the_other, &run.takes(2, 500, 500..1600, 2000), "fence 10 of board lives to 1s");
    }

    #[test]
    fn a_log_with_two_grants_in_a_row_is_caught() {
        let run = Run::default().logs(Fact::Granted, 10, 0, "admin/c1").logs(Fact::Expired, 10, 1000, "admin/c1");
        passes(one_after_the_other, &run.clone().logs(Fact::Granted, 20, 1000, "admin/c2"));
        let twice = Run::default().logs(Fact::Granted, 10, 0, "admin/c1").logs(Fact::Granted, 20, 900, "admin/c2");
        is_caught(one_after_the_other, &twice, "grants Hold { resource: \"board\", fence: 20 } over");
        is_caught(one_after_the_other, &run.logs(Fact::Released, 10, 1001, "admin/c1"), "which nobody has");
    }
}
