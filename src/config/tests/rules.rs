//! `[lease]`, `[waiting_room]`, `[events]` and `[limits]`.

use super::*;
use crate::admission::{CalendarRules, EventRules, LeaseRules, LimitRules, WaitingRules};

#[test]
fn a_refused_rule_names_the_line_the_key_and_the_fix() {
    let section = |name: &str, rest: &str| lab(&format!("[{name}]\n{rest}\n{WORKER}"));
    let lease = |rest: &str| section("lease", rest);
    let waiting = |rest: &str| section("waiting_room", rest);
    let events = |rest: &str| section("events", rest);
    let limits = |rest: &str| section("limits", rest);
    refused(vec![
        (
            lease("max_total = \"5m\""),
            &["lab.toml:4: lease.max_total: lease.max_total (5m) is shorter than lease.default_ttl (15m); raise it"],
        ),
        (
            lease("max_total = \"1h\"\ndefault_ttl = \"2h\""),
            &["lab.toml:4: lease.max_total", "(1h) is shorter than lease.default_ttl (2h)", "leave it out"],
        ),
        (lease("max_total = \"366d\""), &["lease.max_total: \"366d\" is out of bounds", "at most 365d"]),
        (lease("max_total = 60"), &["lease.max_total: must be a duration in quotes", "\"60s\""]),
        (lab("[waiting-room]\n"), &["lab.toml:3: unknown key waiting-room; did you mean waiting_room?"]),
        (
            waiting("waiter_tll = \"5m\""),
            &["unknown key waiting_room.waiter_tll; did you mean waiting_room.waiter_ttl?"],
        ),
        (waiting("colour = 1"), &["waiting_room takes waiter_ttl, admission_grace, priority_aging, return_grace"]),
        (
            waiting("waiter_ttl = \"0s\""),
            &["lab.toml:4: waiting_room.waiter_ttl: \"0s\" is out of bounds; at least 1s, at most 30d"],
        ),
        (waiting("waiter_ttl = \"31d\""), &["waiting_room.waiter_ttl: \"31d\" is out of bounds"]),
        (waiting("waiter_ttl = 300"), &["waiting_room.waiter_ttl: must be a duration in quotes", "\"300s\""]),
        (
            waiting("admission_grace = \"25h\""),
            &["waiting_room.admission_grace: \"25h\" is out of bounds; at least 0s, at most 1d"],
        ),
        (
            waiting("priority_aging = \"0s\""),
            &["waiting_room.priority_aging: \"0s\" is out of bounds; at least 1s, at most 365d"],
        ),
        (waiting("priority_aging = \"366d\""), &["waiting_room.priority_aging: \"366d\" is out of bounds"]),
        (waiting("priority_aging = false"), &["waiting_room.priority_aging: must be text in quotes, not boolean"]),
        (
            waiting("return_grace = \"2d\""),
            &["waiting_room.return_grace: \"2d\" is out of bounds; at least 0s, at most 1d"],
        ),
        (events("retention = \"0s\""), &["events.retention: \"0s\" is out of bounds; at least 1s, at most 3650d"]),
        (events("retention = \"3651d\""), &["events.retention: \"3651d\" is out of bounds"]),
        (events("max_count = 0"), &["events.max_count: must be a whole number from 1 to 100000000, not 0"]),
        (events("max_count = 100000001"), &["events.max_count: must be a whole number from 1 to 100000000"]),
        (events("count_max = 1"), &["unknown key events.count_max; events takes retention, max_count"]),
        (limits("waiters = 0"), &["lab.toml:4: limits.waiters: must be a whole number from 1 to 200000, not 0"]),
        (limits("waiters = 200001"), &["limits.waiters: must be a whole number from 1 to 200000, not 200001"]),
        (limits("waiter = 1"), &["unknown key limits.waiter; did you mean limits.waiters?"]),
    ]);
}

#[test]
fn a_variable_that_sets_no_rule_is_named() {
    refused_variables(&[
        ("BERTH_LEASE__MAX_TOTAL", "1m", "BERTH_LEASE__MAX_TOTAL: lease.max_total: lease.max_total (1m) is shorter"),
        (
            "BERTH_WAITING_ROOM__ADMISSION_GRAC",
            "1s",
            "unknown key waiting_room.admission_grac; did you mean waiting_room.admission_grace?",
        ),
        ("BERTH_WAITING__WAITER_TTL", "1s", "unknown key waiting.waiter_ttl; variables reach the sections lab"),
        (
            "BERTH_WAITING_ROOM__WAITER_TTL",
            "300",
            "BERTH_WAITING_ROOM__WAITER_TTL: waiting_room.waiter_ttl: \"300\" is no",
        ),
        ("BERTH_WAITING_ROOM__PRIORITY_AGING", "", "waiting_room.priority_aging: \"\" is no duration"),
        ("BERTH_EVENTS__MAX_COUNT", "many", "BERTH_EVENTS__MAX_COUNT: events.max_count: must be a whole number"),
        ("BERTH_LIMITS__WAITERS", "0", "BERTH_LIMITS__WAITERS: limits.waiters: must be a whole number from 1"),
    ]);
}

#[test]
fn the_waiting_room_the_events_and_the_limits_are_read() {
    let text = lab(&format!(
        "[lease]\nmax_total = \"15m\"\nuplink_grace = \"0s\"\n\
         [waiting_room]\nwaiter_ttl = \"2m\"\n\
         admission_grace = \"30s\"\npriority_aging = \"10m\"\nreturn_grace = \"0s\"\n\
         [events]\nretention = \"3650d\"\nmax_count = 100_000_000\n[limits]\nwaiters = 7\n{WORKER}"
    ));
    let env = [
        ("BERTH_WAITING_ROOM__ADMISSION_GRACE", "1m"),
        ("BERTH_WAITING_ROOM__PRIORITY_AGING", "1h"),
        ("BERTH_LIMITS__WAITERS", "8"),
    ];
    let seconds = Duration::from_secs;
    let written = load(&text).unwrap().lab.rules;
    let lease = LeaseRules { max_total: Some(seconds(900)), uplink_grace: Duration::ZERO, ..LeaseRules::default() };
    let waiting = WaitingRules {
        waiter_ttl: seconds(120),
        admission_grace: seconds(30),
        priority_aging: Some(seconds(600)),
        return_grace: Duration::ZERO,
    };
    let events = EventRules { retention: seconds(3_650 * 86_400), count_max: 100_000_000 };
    let limits = LimitRules { waiters_max: 7, ..LimitRules::default() };
    assert_eq!(
        written,
        Rules { lease, waiting, calendar: CalendarRules::default(), events, limits, exec: Default::default() }
    );

    let effective = load_with(&text, &env).unwrap();
    let over = &effective.lab.rules;
    assert_eq!((over.waiting.admission_grace, over.waiting.priority_aging), (seconds(60), Some(seconds(3_600))));
    assert_eq!((over.waiting.waiter_ttl, over.limits.waiters_max), (seconds(120), 8));
    let variable = |name: &str| Origin::Environment(name.to_owned());
    let aging = origin(&effective, "waiting_room.priority_aging");
    assert_eq!(*aging, variable("BERTH_WAITING_ROOM__PRIORITY_AGING"));
    assert_eq!(*origin(&effective, "limits.waiters"), variable("BERTH_LIMITS__WAITERS"));
    assert!(matches!(origin(&effective, "events.max_count"), Origin::File { line: 13, .. }));
    assert_eq!(load(&lab(WORKER)).unwrap().lab.rules, Rules::default());
}

#[test]
fn the_seconds_of_a_waiter_win_over_the_file_and_the_other_variable() {
    const SECONDS: &str = "LEASE_WAITER_TTL_SECONDS";
    let text = lab(&format!("[waiting_room]\nwaiter_ttl = \"2m\"\n{WORKER}"));
    let table = [("1", 1), ("90", 90), ("2592000", 30 * 86_400)];
    for (given, expected) in table {
        for env in [&[(SECONDS, given)][..], &[(SECONDS, given), ("BERTH_WAITING_ROOM__WAITER_TTL", "3m")]] {
            let effective = load_with(&text, env).unwrap();
            assert_eq!(effective.lab.rules.waiting.waiter_ttl, Duration::from_secs(expected));
            assert_eq!(*origin(&effective, "waiting_room.waiter_ttl"), Origin::Environment(SECONDS.to_owned()));
        }
    }
    let other = load_with(&text, &[("BERTH_WAITING_ROOM__WAITER_TTL", "3m")]).unwrap();
    assert_eq!(other.lab.rules.waiting.waiter_ttl, Duration::from_secs(180));
    for wrong in ["", "0", "-1", "1.5", "5m", "2592001", "99999999999999999999", "ten"] {
        let error = load_with(&text, &[(SECONDS, wrong)]).map(|_| ()).expect_err(wrong).to_string();
        let words = "LEASE_WAITER_TTL_SECONDS: waiting_room.waiter_ttl: must be whole seconds from 1 to 2592000, \
                     such as 300, without a unit";
        assert!(error.starts_with(words), "{error}");
        assert!(error.ends_with(&format!("not {wrong:?}")), "{error}");
    }
}
