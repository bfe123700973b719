//! I7, as far as a client can see: nobody is granted a resource before an attended waiter ahead, nor while it is kept
//! for somebody else.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::chaos::grants::{Grant, by_resource};
use crate::chaos::history::{Answer, Ask, At, Call, Entry, Run, SLACK};

/// `waiting_room.admission_grace` of the lab.
pub const GRACE: Duration = Duration::from_secs(1);

/// One request by name, and when it was seen waiting: from the start to the end of each such answer.
struct Waiter<'a> {
    client: u32,
    door: &'a str,
    ask: &'a Ask,
    seen: Vec<(At, At)>,
}

/// Both rules.
pub fn nobody_overtakes(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let resources = by_resource(&run.history);
    let grants_of = |resource: &str| {
        resources.iter().find(|grants| grants[0].hold.resource == resource).map_or(&[][..], Vec::as_slice)
    };
    for waiter in waiters(&run.history) {
        let resource = waiter.ask.resource.as_deref().unwrap_or_default();
        found.extend(grants_of(resource).iter().filter_map(|grant| overtaken(run, &waiter, grant)));
    }
    let left: Vec<_> = run.history.iter().filter(|entry| matches!(entry.call, Call::Leave { .. })).collect();
    for entry in &run.history {
        if let (Call::Release(hold), Answer::Released { next: Some(next) }) = (&entry.call, &entry.answer) {
            found.extend(unreserved(&left, entry, next, grants_of(&hold.resource)));
        }
    }
    found
}

/// Those who wait for a resource by its name, attended.
fn waiters(history: &[Entry]) -> Vec<Waiter<'_>> {
    let mut waiters: BTreeMap<&str, Waiter<'_>> = BTreeMap::new();
    for entry in history {
        let (Call::Ask(ask) | Call::Poll(ask)) = &entry.call else { continue };
        let Answer::Waiting { request } = &entry.answer else { continue };
        if ask.resource.is_some() {
            let new = || Waiter { client: entry.client, door: &entry.door, ask, seen: Vec::new() };
            waiters.entry(request).or_insert_with(new).seen.push((entry.start, entry.end));
        }
    }
    let mut waiters: Vec<_> = waiters.into_values().collect();
    waiters.iter_mut().for_each(|waiter| waiter.seen.sort());
    waiters
}

/// Whether the grant went to somebody behind the waiter while it waited. One request has one id, so nothing that it
/// survives has moved it; a restart of its node gives it another.
fn overtaken(run: &Run, waiter: &Waiter<'_>, grant: &Grant) -> Option<String> {
    let at = grant.granted;
    let first = waiter.seen.first()?.1;
    let is_behind = grant.ask.priority <= waiter.ask.priority && grant.asked > first + SLACK;
    let before = waiter.seen.iter().rev().map(|seen| seen.1).find(|end| *end + SLACK < at)?;
    let after = waiter.seen.iter().map(|seen| seen.0).find(|start| *start > at + SLACK)?;
    if !is_behind || grant.client == waiter.client {
        return None;
    }
    // A worker that has no gateway passes over its gateway's waiters, and what it has granted them is told later.
    let through = |node: &str| run.is_calm(node, before, after) || waiter.door != "gateway";
    let owner = run.owner(&grant.hold.resource);
    if !through("gateway") || !owner.is_some_and(through) {
        return None;
    }
    Some(format!(
        "client {} waits for {} from {first:?} on, still at {after:?}, and client {} behind it is granted fence {} at {at:?}",
        waiter.client, grant.hold.resource, grant.client, grant.hold.fence
    ))
}

/// Whether somebody else was granted what a release has kept for `next`, who is not among those that left.
fn unreserved(left: &[&Entry], release: &Entry, next: &str, grants: &[Grant]) -> Option<String> {
    let next = next.rsplit(':').next().unwrap_or(next);
    let kept_until = (release.start + GRACE).saturating_sub(SLACK);
    let is_left = left.iter().any(|entry| {
        matches!(&entry.call, Call::Leave { requester, .. } if requester == next)
            && entry.start < kept_until
            && entry.end > release.start
    });
    let within = |grant: &&Grant| grant.granted > release.end + SLACK && grant.granted < kept_until;
    let other = grants.iter().find(|grant| within(grant) && grant.ask.requester != next)?;
    let was_served = grants.iter().any(|grant| {
        grant.ask.requester == next && grant.granted + SLACK > release.start && grant.granted < other.granted
    });
    let whose = format!("client {} is granted {:?} at {:?}", other.client, other.hold, other.granted);
    (!is_left && !was_served).then(|| format!("{whose}; it is kept for {next} until {kept_until:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::{Fact, Wait};
    use crate::chaos::story::{ask, board, is_caught, passes};

    /// Client 1 waits for the board from 1 s on, still at 5 s.
    fn waits() -> Run {
        let waiting = || Answer::Waiting { request: "req".to_owned() };
        Run::default()
            .logs(Fact::Granted, 10, 0, "a")
            .call(1, 900..1000, Call::Ask(ask(Wait::Attended)), waiting())
            .call(1, 5000..6000, Call::Poll(ask(Wait::Attended)), waiting())
    }

    #[test]
    fn whoever_is_granted_before_a_waiter_ahead_is_caught() {
        passes(nobody_overtakes, &waits());
        passes(nobody_overtakes, &waits().takes(2, 800, 800..820, 2000));
        passes(nobody_overtakes, &waits().takes(2, 5500, 5500..5520, 7000));
        is_caught(nobody_overtakes, &waits().takes(2, 3000, 3000..3020, 4000), "client 2 behind it");
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let first = Ask { priority: 5, ..ask(Wait::No) };
        let told = crate::chaos::story::lease(3000, 3000, 4000);
        passes(nobody_overtakes, &waits().call(2, 3000..3020, Call::Ask(first), told));
    }

    #[test]
    fn a_waiter_at_the_gateway_is_passed_over_while_its_worker_is_away() {
        let mut run = waits();
        run.history.iter_mut().for_each(|entry| entry.door = "gateway".to_owned());
        let run = run.takes(2, 3000, 3000..3020, 4000);
        is_caught(nobody_overtakes, &run, "client 2 behind it");
        passes(nobody_overtakes, &run.clone().fault("rack-1", 2000..2500));
        passes(nobody_overtakes, &run.clone().fault("gateway", 2000..2500));
        is_caught(nobody_overtakes, &run.fault("rack-2", 2000..2500), "client 2 behind it");
    }

    #[test]
    fn whoever_takes_what_is_kept_for_another_is_caught() {
        let kept = |next: &str| {
            let next = Answer::Released { next: Some(next.to_owned()) };
            Run::default().logs(Fact::Granted, 10, 0, "a").call(3, 1000..1010, Call::Release(board(10)), next)
        };
        let run = kept("gw:gateway:admin/c1");
        is_caught(nobody_overtakes, &run.clone().takes(2, 1400, 1400..1420, 3000), "it is kept for admin/c1");
        passes(nobody_overtakes, &run.clone().takes(2, 2000, 2000..2020, 3000));
        passes(nobody_overtakes, &run.clone().takes(1, 1400, 1400..1420, 3000));
        let served = run.clone().takes(1, 1100, 1100..1120, 3000).releases(1, 1100, 1150..1200);
        passes(nobody_overtakes, &served.takes(2, 1500, 1500..1520, 3000));
        let leave = Call::Leave { requester: "admin/c1".to_owned(), resource: "board".to_owned() };
        passes(nobody_overtakes, &run.call(1, 1100..1110, leave, Answer::Done).takes(2, 1400, 1400..1420, 3000));
    }
}
