//! `[bookings]`, `[holds]`, what a resource says about its own bookings, and their limits.

use super::*;
use crate::admission::{CalendarRules, LimitRules};
use crate::model::{BookingMode, BookingPolicy};

#[test]
fn a_refused_rule_of_the_calendar_names_the_line_the_key_and_the_fix() {
    let section = |name: &str, rest: &str| lab(&format!("[{name}]\n{rest}\n{WORKER}"));
    let bookings = |rest: &str| section("bookings", rest);
    let holds = |rest: &str| section("holds", rest);
    let limits = |rest: &str| section("limits", rest);
    let resource = |rest: &str| lab(&format!("{WORKER}[[worker.resource]]\nid = \"a\"\n{rest}"));
    refused(vec![
        (lab("[booking]\n"), &["lab.toml:3: unknown key booking; did you mean bookings?"]),
        (lab("[hold]\n"), &["lab.toml:3: unknown key hold; did you mean holds?"]),
        (lab(&format!("holds = true\n{WORKER}")), &["lab.holds; lab takes name, state_dir"]),
        (
            bookings("mode = \"strict\""),
            &["lab.toml:4: bookings.mode: must be \"advisory\" or \"enforced\", not \"strict\""],
        ),
        (bookings("mode = true"), &["bookings.mode: must be text in quotes, not boolean"]),
        (bookings("auto_acquire = \"yes\""), &["bookings.auto_acquire: must be true or false, without quotes"]),
        (bookings("auto_aquire = true"), &["unknown key bookings.auto_aquire; did you mean bookings.auto_acquire?"]),
        (bookings("colour = 1"), &["bookings takes mode, auto_acquire, max_duration, horizon, no_show_after"]),
        (
            bookings("max_duration = \"59s\""),
            &["lab.toml:4: bookings.max_duration: \"59s\" is out of bounds; at least 1m, at most 366d"],
        ),
        (bookings("max_duration = \"367d\""), &["bookings.max_duration: \"367d\" is out of bounds"]),
        (bookings("horizon = \"59m\""), &["bookings.horizon: \"59m\" is out of bounds; at least 1h, at most 3660d"]),
        (bookings("horizon = \"3661d\""), &["bookings.horizon: \"3661d\" is out of bounds"]),
        (bookings("horizon = 30"), &["bookings.horizon: must be a duration in quotes", "\"30s\""]),
        (
            bookings("no_show_after = \"0s\""),
            &["bookings.no_show_after: \"0s\" is out of bounds; at least 1s, at most 30d"],
        ),
        (bookings("no_show_after = false"), &["bookings.no_show_after: must be text in quotes, not boolean"]),
        (holds("enabled = 1"), &["holds.enabled: must be true or false, without quotes"]),
        (holds("ttl = \"1m\""), &["unknown key holds.ttl; holds takes enabled, default_ttl, max_ttl, check_interval"]),
        (holds("max_tll = \"1m\""), &["unknown key holds.max_tll; did you mean holds.max_ttl?"]),
        (holds("max_ttl = \"0s\""), &["holds.max_ttl: \"0s\" is out of bounds; at least 1s, at most 1d"]),
        (holds("max_ttl = \"25h\""), &["holds.max_ttl: \"25h\" is out of bounds"]),
        (
            holds("max_ttl = \"5m\""),
            &["lab.toml:4: holds.max_ttl: holds.default_ttl (10m) is longer than holds.max_ttl (5m); change one"],
        ),
        (
            holds("default_ttl = \"31m\""),
            &["lab.toml:4: holds.default_ttl: holds.default_ttl (31m) is longer than holds.max_ttl (30m)"],
        ),
        (
            holds("check_interval = \"61m\""),
            &["holds.check_interval: \"61m\" is out of bounds; at least 1s, at most 1h"],
        ),
        (holds("check_interval = \"0s\""), &["holds.check_interval: \"0s\" is out of bounds"]),
        (limits("bookings = 0"), &["lab.toml:4: limits.bookings: must be a whole number from 1 to 100000, not 0"]),
        (limits("bookings = 100001"), &["limits.bookings: must be a whole number from 1 to 100000, not 100001"]),
        (limits("bookings_per_principal = 0"), &["limits.bookings_per_principal: must be a whole number from 1"]),
        (
            limits("holds_per_principal = 10001"),
            &["limits.holds_per_principal: must be a whole number from 1 to 10000, not 10001"],
        ),
        (
            limits("hold_per_principal = 1"),
            &["unknown key limits.hold_per_principal; did you mean limits.holds_per_principal?"],
        ),
        (
            resource("bookings = \"enforced\""),
            &["lab.toml:7: worker.rack-1.resource.a.bookings: must be a table, such as { mode = \"enforced\""],
        ),
        (
            resource("bookings = { mode = \"off\" }"),
            &["lab.toml:7: worker.rack-1.resource.a.bookings.mode: must be \"advisory\" or \"enforced\", not \"off\""],
        ),
        (
            resource("bookings = { horizon = \"1h\" }"),
            &["resource.a.bookings.horizon", "resource.a.bookings takes mode, auto_acquire, no_show_after"],
        ),
        (
            resource("bookings = { no_show = \"1h\" }"),
            &["resource.a.bookings.no_show", "resource.a.bookings takes mode, auto_acquire, no_show_after"],
        ),
        (
            resource("bookings = { no_show_afer = \"1h\" }"),
            &["did you mean worker.rack-1.resource.a.bookings.no_show_after?"],
        ),
        (
            resource("bookings = { no_show_after = \"31d\" }"),
            &["resource.a.bookings.no_show_after: \"31d\" is out of bounds; at least 1s, at most 30d"],
        ),
    ]);
}

#[test]
fn a_variable_that_sets_no_rule_of_the_calendar_is_named() {
    refused_variables(&[
        ("BERTH_BOOKINGS__MODE", "strict", "BERTH_BOOKINGS__MODE: bookings.mode: must be \"advisory\" or \"enforced\""),
        ("BERTH_BOOKINGS__AUTO_ACQUIRE", "1", "BERTH_BOOKINGS__AUTO_ACQUIRE: bookings.auto_acquire: must be true"),
        ("BERTH_HOLDS__MAX_TTL", "5m", "BERTH_HOLDS__MAX_TTL: holds.max_ttl: holds.default_ttl (10m) is longer"),
        ("BERTH_HOLDS__TTL", "5m", "unknown key holds.ttl; holds takes enabled"),
        ("BERTH_LIMITS__BOOKINGS", "many", "BERTH_LIMITS__BOOKINGS: limits.bookings: must be a whole number"),
    ]);
}

#[test]
fn the_calendar_is_read_and_a_variable_wins_over_the_file() {
    let text = lab(&format!(
        "[bookings]\nmax_duration = \"366d\"\nhorizon = \"3660d\"\n\
         [holds]\nenabled = false\ndefault_ttl = \"1s\"\nmax_ttl = \"24h\"\ncheck_interval = \"1h\"\n\
         [limits]\nbookings = 5\nbookings_per_principal = 6\nholds_per_principal = 7\n{WORKER}"
    ));
    let seconds = Duration::from_secs;
    let rules = load(&text).unwrap().lab.rules;
    let calendar = CalendarRules {
        max_duration: seconds(366 * 86_400),
        horizon: seconds(3_660 * 86_400),
        holds_enabled: false,
        hold_ttl: seconds(1),
        hold_ttl_max: seconds(86_400),
        check_interval: seconds(3_600),
        bookings_max: 5,
    };
    assert_eq!(rules.calendar, calendar);
    let limits = LimitRules { bookings_per_principal: 6, holds_per_principal: 7, ..LimitRules::default() };
    assert_eq!(rules.limits, limits);

    let env = [("BERTH_HOLDS__ENABLED", "true"), ("BERTH_BOOKINGS__HORIZON", "30d"), ("BERTH_LIMITS__BOOKINGS", "9")];
    let effective = load_with(&text, &env).unwrap();
    let over = &effective.lab.rules.calendar;
    assert_eq!((over.holds_enabled, over.horizon, over.bookings_max), (true, seconds(30 * 86_400), 9));
    assert_eq!(*origin(&effective, "holds.enabled"), Origin::Environment("BERTH_HOLDS__ENABLED".to_owned()));
    assert!(matches!(origin(&effective, "holds.check_interval"), Origin::File { line: 10, .. }));
}

#[test]
fn a_resource_says_what_its_bookings_mean_where_it_differs_from_the_lab() {
    let resources = "[[worker.resource]]\nid = \"plain\"\n\
         [[worker.resource]]\nid = \"loose-{n}\"\ncount = 2\nbookings = { mode = \"advisory\" }\n\
         [[worker.resource]]\nid = \"own\"\n\
         bookings = { mode = \"enforced\", auto_acquire = true, no_show_after = \"5m\" }\n";
    let minutes = |count: u64| Some(Duration::from_secs(60 * count));
    let policies = |section: &str, env: &[(&str, &str)]| {
        let effective = load_with(&lab(&format!("{section}{WORKER}{resources}")), env).unwrap();
        effective.lab.workers[0].resources.iter().map(|resource| resource.bookings).collect::<Vec<_>>()
    };
    let policy = |mode, auto_acquire, no_show_after| BookingPolicy { mode, auto_acquire, no_show_after };
    let (advisory, enforced) = (BookingMode::Advisory, BookingMode::Enforced);
    let own = policy(enforced, true, minutes(5));
    let none = BookingPolicy::default();
    assert_eq!(policies("", &[]), [none, none, none, own]);
    let section = "[bookings]\nmode = \"enforced\"\nno_show_after = \"15m\"\n";
    let loose = policy(advisory, false, minutes(15));
    assert_eq!(policies(section, &[]), [policy(enforced, false, minutes(15)), loose, loose, own]);
    let env = [("BERTH_BOOKINGS__MODE", "advisory"), ("BERTH_BOOKINGS__AUTO_ACQUIRE", "true")];
    assert_eq!(policies(section, &env)[0], policy(advisory, true, minutes(15)));

    let effective = load(&lab(&format!("{section}{WORKER}{resources}"))).unwrap();
    assert!(matches!(origin(&effective, "worker.rack-1.resource.own.bookings.mode"), Origin::File { line: 16, .. }));
    assert!(matches!(origin(&effective, "bookings.no_show_after"), Origin::File { line: 5, .. }));
    assert_eq!(*origin(&effective, "bookings.auto_acquire"), Origin::Default);
    assert!(!effective.values.iter().any(|value| value.key.contains("resource.plain.bookings")));
}

#[test]
fn the_lab_of_the_equipment_service_loads_and_is_the_lab_that_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/maintenance.toml");
    let lab = Effective::load(Source::File(path), home().into_iter()).unwrap().lab;
    assert_eq!(lab.name.as_str(), "maintenance");
    assert_eq!(lab.gateway, None, "one machine is enough");
    let resources = &lab.workers[0].resources;
    let (vans, people): (Vec<_>, Vec<_>) = resources.iter().partition(|it| it.id.as_str().starts_with("van-"));
    assert_eq!((people.len(), vans.len()), (7, 2));
    assert!(people.iter().all(|it| it.bookings.mode == BookingMode::Enforced && it.bookings.auto_acquire));
    assert!(vans.iter().all(|it| it.bookings.mode == BookingMode::Advisory && !it.bookings.auto_acquire));
    let labels = |key: &str| key.parse().unwrap();
    let (trade, region) = (labels("trade"), labels("region"));
    assert!(resources.iter().all(|it| it.labels.contains_key(&trade) && it.labels.contains_key(&region)));
    let calendar = &lab.rules.calendar;
    assert!(calendar.hold_ttl_max <= Duration::from_secs(600), "holds are short");
    assert!(calendar.holds_enabled);
}
