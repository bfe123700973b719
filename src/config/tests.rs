use std::fs;
use std::path::Path;

use super::*;

mod calendar;
mod driver;
mod rules;

const WORKER: &str = "[[worker]]\nname = \"rack-1\"\n";

fn home() -> Vec<(String, String)> {
    vec![("HOME".to_owned(), "/home/ada".to_owned()), ("BERTH_TOKEN".to_owned(), "not a setting".to_owned())]
}

fn load_with(text: &str, env: &[(&str, &str)]) -> Result<Effective, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.toml");
    fs::write(&path, text).unwrap();
    let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Effective::load(Source::File(path), home().into_iter().chain(env))
}

fn load(text: &str) -> Result<Effective, ConfigError> {
    load_with(text, &[])
}

/// A file with `[lab]` and what `rest` says.
fn lab(rest: &str) -> String {
    format!("[lab]\nname = \"berlin\"\n{rest}")
}

fn origin<'a>(effective: &'a Effective, key: &str) -> &'a Origin {
    &effective.values.iter().find(|value| value.key == key).unwrap_or_else(|| panic!("no {key}")).origin
}

/// Panics unless each file is refused on one line that holds all of its words.
#[track_caller]
fn refused(table: Vec<(String, &[&str])>) {
    for (text, expected) in table {
        let error = load(&text).map(|_| ()).expect_err(&text).to_string();
        for part in expected {
            assert!(error.contains(part), "{text}\n  {error}\n  lacks {part}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Panics unless each variable, as (name, value, words), is refused with its words.
#[track_caller]
fn refused_variables(table: &[(&str, &str, &str)]) {
    for (name, value, expected) in table {
        let error = load_with(&lab(WORKER), &[(*name, *value)]).map(|_| ()).expect_err(name).to_string();
        assert!(error.contains(expected), "{error}\n  lacks {expected}");
    }
}

#[test]
fn the_embedded_lab_loads_and_is_the_lab_that_it_says() {
    let effective = Effective::load(Source::Embedded, home().into_iter()).unwrap();
    let lab = &effective.lab;
    assert_eq!(lab.name.as_str(), "demo");
    assert_eq!(lab.state_dir, Path::new("/home/ada/.local/state/berth/demo"));
    let gateway = lab.gateway.as_ref().unwrap();
    assert_eq!((gateway.api.port(), gateway.address.as_str()), (4700, "127.0.0.1:4701"));
    assert_eq!((gateway.rebuild_wait.as_secs(), gateway.absence_grace.as_secs()), (10, 30));
    assert_eq!(lab.rules, Rules::default());
    let sizes: Vec<_> = lab.workers.iter().map(|worker| (worker.name.as_str(), worker.resources.len())).collect();
    assert_eq!(sizes, [("rack-1", 5), ("rack-2", 8)]);
    assert!(matches!(origin(&effective, "lease.max_ttl"), Origin::Embedded { line } if *line > 1));
    let ids: Vec<_> = lab.workers[1].resources.iter().map(|resource| resource.id.as_str()).collect();
    assert_eq!(ids[..4], ["imx8-1", "imx8-2", "imx8-3", "rpi-5-1"]);
}

#[test]
fn a_refused_file_names_the_line_the_key_and_the_fix() {
    let gateway = format!("[gateway]\n{WORKER}");
    let worker = |rest: &str| lab(&format!("{WORKER}{rest}"));
    let resource = |rest: &str| worker(&format!("[[worker.resource]]\n{rest}"));
    let lease = |rest: &str| lab(&format!("[lease]\n{rest}\n{WORKER}"));
    let table: Vec<(String, &[&str])> = vec![
        ("[lab".to_owned(), &["lab.toml:1: not valid TOML"]),
        (lab("name = \"again\""), &["lab.toml:3: not valid TOML", "duplicate"]),
        (WORKER.to_owned(), &["lab.name: is missing; write name"]),
        (lab(""), &["worker: is missing", "[[worker]]"]),
        (lab("worker = []"), &["lab.worker; lab takes name, state_dir"]),
        (format!("worker = []\n{}", lab("")), &["lab.toml:1: worker: is missing"]),
        (lab("[worker]\nname = \"a\""), &["lab.toml:3: worker: must be a list of tables; write [[worker]]"]),
        (lab("[leese]\n"), &["lab.toml:3: unknown key leese; did you mean lease?"]),
        (
            lab("[drivers]\n"),
            &["drivers; the file takes lab, gateway, pki, api, lease, waiting_room, bookings, holds, events, limits, \
                 exec, worker"],
        ),
        (lease("max_tll = \"4h\""), &["lab.toml:4: unknown key lease.max_tll; did you mean lease.max_ttl?"]),
        (lease("colour = 1"), &["unknown key lease.colour; lease takes default_ttl, max_ttl"]),
        (lease("\"a b\" = 1"), &["unknown key lease.\"a b\""]),
        (worker("adress = \"x\""), &["lab.toml:5: unknown key worker.rack-1.adress; worker.rack-1 takes name"]),
        (
            resource("id = \"a\"\nmax_shraed = 2"),
            &["lab.toml:7: unknown key worker.rack-1.resource.a.max_shraed", "max_shared?"],
        ),
        (format!("lab = 3\n{WORKER}"), &["lab.toml:1: lab: must be a table; write [lab]"]),
        (lease("max_ttl = 240"), &["lab.toml:4: lease.max_ttl: must be a duration in quotes", "\"240s\""]),
        (lease("max_ttl = true"), &["lease.max_ttl: must be text in quotes, not boolean"]),
        (lease("max_ttl = \"15 parsecs\""), &["lab.toml:4: lease.max_ttl: \"15 parsecs\" is no duration", "\"1h30m\""]),
        (lease("default_ttl = \"0s\""), &["lease.default_ttl: \"0s\" is out of bounds; at least 1ms"]),
        (lease("request_retention = \"0s\""), &["lease.request_retention"]),
        (lease("uplink_grace = \"25h\""), &["lease.uplink_grace"]),
        (lease("default_ttl = \"5h\""), &["lab.toml:4: lease.default_ttl", "(5h) is longer than lease.max_ttl (4h)"]),
        (lease("max_ttl = \"5m\""), &["lab.toml:4: lease.max_ttl", "(15m) is longer than lease.max_ttl (5m)"]),
        (lease("max_per_requester = 0"), &["lease.max_per_requester: must be a whole number from 1 to 100000, not 0"]),
        (lease("max_per_requester = \"2\""), &["must be a whole number, without quotes, not string"]),
        (lease("max_per_requester = 1.5"), &["must be a whole number, without quotes, not float"]),
        (lab(&format!("[api]\ninsecure = \"yes\"\n{WORKER}")), &["api.insecure: must be true or false"]),
        (
            lab(&format!("[pki]\nca = \"ca.pem\"\n{WORKER}")),
            &["lab.toml:3: pki.cert: is missing; [pki] needs ca, cert and key"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\nname = \"Gate\"")),
            &["gateway.name: \"Gate\" is not a node name"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\nname = \"rack-1\"")),
            &["lab.toml:6: worker.rack-1.name: the gateway is called rack-1 too"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\nlink = \"localhost\"")),
            &["gateway.link: \"localhost\" is no address", "127.0.0.1:4700"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\napi = \"0.0.0.0:4700\"")),
            &["lab.toml:4: gateway.api", "plain HTTP", "api.insecure = true"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\naddress = \"gw.lab.example\"")),
            &["gateway.address: must be a host and a port"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\naddress = \"gw:0\"")),
            &["gateway.address: must be a host and a port"],
        ),
        (
            lab(&gateway.replace("[gateway]", "[gateway]\nrebuild_wait = \"2d\"")),
            &["gateway.rebuild_wait", "at most 1d"],
        ),
        (worker("api = \"192.0.2.1:80\""), &["lab.toml:5: worker.rack-1.api: 192.0.2.1:80 is not loopback"]),
        (lab(&format!("{WORKER}{WORKER}")), &["lab.toml:3: worker: 2 workers need a gateway"]),
        (
            lab(&format!("[gateway]\n{WORKER}{WORKER}")),
            &["lab.toml:7: worker.rack-1.name: the worker at", "lab.toml:5 is called rack-1"],
        ),
        (lab("[[worker]]\n"), &["lab.toml:3: worker[1].name: is missing"]),
        (resource("labels = {}"), &["lab.toml:5: worker.rack-1.resource[1].id: is missing"]),
        (resource("id = \"a b\""), &["\"a b\" is not a resource id"]),
        (
            resource("id = \"a\"\n[[worker.resource]]\nid = \"a\""),
            &["lab.toml:8: worker.rack-1.resource.a.id: a is also a resource at", "lab.toml:6"],
        ),
        (resource("id = \"a-{n}\"\ncount = 3\n[[worker.resource]]\nid = \"a-2\""), &["a-2 is also a resource at"]),
        (resource("id = \"a\"\ncount = 3"), &["lab.toml:7: worker.rack-1.resource.a.count: needs {n} in the id"]),
        (resource("id = \"a-{n}\""), &["lab.toml:6: worker.rack-1.resource.a-{n}.id: has {n} in it but no count"]),
        (resource("id = \"a-{n}\"\ncount = 0"), &["count: must be a whole number from 1 to 100000"]),
        (resource("id = \"a-{n}\"\ncount = 100001"), &["count: must be a whole number from 1 to 100000"]),
        (
            resource("id = \"a-{n}\"\ncount = 100000\n[[worker.resource]]\nid = \"b\""),
            &["resource.b.id: a worker has at most 100000 resources"],
        ),
        (resource("id = \"a\"\nlabels = [1]"), &["labels: must be a table of keys and texts"]),
        (
            resource("id = \"a\"\nlabels = { os = 15 }"),
            &["lab.toml:7: worker.rack-1.resource.a.labels.os", "write os = \"15\""],
        ),
        (resource("id = \"a\"\nlabels = { OS = \"15\" }"), &["labels.OS: \"OS\" is not a label key"]),
        (resource("id = \"a\"\nlabels = { os = \"1\\n5\" }"), &["labels.os", "is not a label value"]),
        (resource("id = \"a\"\nmax_shared = 0"), &["max_shared: must be a whole number from 1 to 256"]),
    ];
    refused(table);
}

#[test]
fn more_workers_than_a_lab_may_have_are_refused() {
    let workers: String = (0..=crate::limits::WORKERS_MAX).map(|n| format!("[[worker]]\nname = \"w{n}\"\n")).collect();
    let error = load(&lab(&format!("[gateway]\n{workers}"))).unwrap_err().to_string();
    assert!(error.contains("1001 workers; a lab has at most 1000"), "{error}");
}

#[test]
fn a_variable_takes_the_place_of_a_line_and_is_named_as_the_origin() {
    let text = lab(&format!("[gateway]\napi = \"127.0.0.1:1\"\n[lease]\nmax_ttl = \"2h\"\n{WORKER}"));
    let env = [
        ("BERTH_LEASE__MAX_TTL", "8h"),
        ("BERTH_LEASE__MAX_PER_REQUESTER", "3"),
        ("BERTH_API__INSECURE", "true"),
        ("BERTH_GATEWAY__API", "0.0.0.0:4700"),
        ("BERTH_LAB__STATE_DIR", "/srv/berth"),
    ];
    let effective = load_with(&text, &env).unwrap();
    let lab = &effective.lab;
    assert_eq!(lab.rules.lease.max_ttl, Duration::from_secs(8 * 3600));
    assert_eq!(lab.rules.lease.max_per_requester, 3);
    assert!(lab.insecure);
    assert_eq!(lab.gateway.as_ref().unwrap().api.to_string(), "0.0.0.0:4700");
    assert_eq!(lab.node_dir(&"rack-1".parse().unwrap()), Path::new("/srv/berth/rack-1"));
    assert_eq!(*origin(&effective, "lease.max_ttl"), Origin::Environment("BERTH_LEASE__MAX_TTL".to_owned()));
    assert_eq!(*origin(&effective, "lease.default_ttl"), Origin::Default);
    assert!(matches!(origin(&effective, "lab.name"), Origin::File { line: 2, .. }));
    assert!(matches!(origin(&effective, "worker.rack-1.name"), Origin::File { line: 8, .. }));
}

#[test]
fn a_variable_that_sets_nothing_is_an_error_too() {
    let table = [
        ("BERTH_LEASE__MAX_TLL", "8h", "BERTH_LEASE__MAX_TLL: unknown key lease.max_tll; did you mean lease.max_ttl?"),
        ("BERTH_LEESE__MAX_TTL", "8h", "unknown key leese.max_ttl; did you mean lease?"),
        (
            "BERTH_X__Y",
            "1",
            "unknown key x.y; variables reach the sections lab, gateway, pki, api, lease, waiting_room",
        ),
        ("BERTH_WORKER__NAME", "a", "workers are set in the lab file only"),
        ("BERTH_LEASE__MAX_TTL", "8 parsecs", "BERTH_LEASE__MAX_TTL: lease.max_ttl: \"8 parsecs\" is no duration"),
        ("BERTH_LEASE__MAX_PER_REQUESTER", "two", "BERTH_LEASE__MAX_PER_REQUESTER: lease.max_per_requester: must be a"),
        ("BERTH_API__INSECURE", "yes", "BERTH_API__INSECURE: api.insecure: must be true or false"),
        ("BERTH_GATEWAY__API", "127.0.0.1:1", "gateway.api: the lab file has no [gateway]"),
        ("BERTH_LAB__STATE_DIR", "", "lab.state_dir: is empty"),
        ("BERTH_LEASE__DEFAULT_TTL", "1ns", "lease.default_ttl: \"1ns\" is out of bounds"),
    ];
    refused_variables(&table);
}

#[test]
fn the_state_directory_follows_xdg_and_counts_from_the_current_directory() {
    let with = |env: &[(&str, &str)]| load_with(&lab(WORKER), env).unwrap().lab.state_dir;
    assert_eq!(with(&[]), Path::new("/home/ada/.local/state/berth/berlin"));
    assert_eq!(with(&[("XDG_STATE_HOME", "/x")]), Path::new("/x/berth/berlin"));
    assert_eq!(with(&[("XDG_STATE_HOME", "x")]), Path::new("/home/ada/.local/state/berth/berlin"));
    assert_eq!(with(&[("BERTH_LAB__STATE_DIR", "state")]), std::env::current_dir().unwrap().join("state"));
    let homeless = Effective::load(Source::Embedded, std::iter::empty()).unwrap_err().to_string();
    assert!(homeless.contains("lab.state_dir") && homeless.contains("BERTH_LAB__STATE_DIR"), "{homeless}");
}

#[test]
fn workers_dial_the_link_or_loopback_or_what_the_file_says() {
    let with = |line: &str| {
        let text = lab(&format!("[gateway]\n{line}\n{WORKER}"));
        load(&text).unwrap().lab.gateway.unwrap().address
    };
    assert_eq!(with(""), "127.0.0.1:4701");
    assert_eq!(with("link = \"0.0.0.0:99\""), "127.0.0.1:99");
    assert_eq!(with("link = \"[::]:99\""), "[::1]:99");
    assert_eq!(with("link = \"192.0.2.7:99\""), "192.0.2.7:99");
    assert_eq!(with("address = \"gw.lab.example:4701\""), "gw.lab.example:4701");
    assert_eq!(with("address = \"[2001:db8::1]:4701\""), "[2001:db8::1]:4701");
}

#[test]
fn a_standalone_worker_needs_no_gateway_and_pki_paths_follow_the_node() {
    let text = lab(&format!("[pki]\nca = \"ca.pem\"\ncert = \"{{node}}.pem\"\nkey = \"/k/{{node}}.key\"\n{WORKER}"));
    let lab = load(&text).unwrap().lab;
    assert_eq!(lab.gateway, None);
    let paths = lab.pki.unwrap().of(&"rack-1".parse().unwrap());
    assert_eq!((paths.cert.as_path(), paths.key.as_path()), (Path::new("rack-1.pem"), Path::new("/k/rack-1.key")));
}

#[test]
fn a_missing_file_is_named() {
    let error = Effective::load(Source::File("/no/such/lab.toml".into()), home().into_iter()).unwrap_err();
    assert!(error.to_string().contains("/no/such/lab.toml"), "{error}");
}

#[test]
fn config_check_shows_every_value_and_where_it_came_from() {
    let env = [("BERTH_LEASE__MAX_TTL".to_owned(), "8h".to_owned())];
    let text = Effective::load(Source::Embedded, home().into_iter().chain(env)).unwrap().to_string();
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("lease.max_ttl = \"8h\" ").ends_with("  # BERTH_LEASE__MAX_TTL"));
    assert!(line("gateway.absence_grace = \"30s\" ").ends_with("  # default"));
    for (start, value) in [
        ("waiting_room.waiter_ttl", "\"5m\""),
        ("waiting_room.admission_grace", "\"0s\""),
        ("waiting_room.return_grace", "\"5s\""),
        ("bookings.mode", "\"advisory\""),
        ("bookings.auto_acquire", "false"),
        ("bookings.max_duration", "\"30d\""),
        ("bookings.horizon", "\"365d\""),
        ("holds.enabled", "true"),
        ("holds.default_ttl", "\"10m\""),
        ("holds.max_ttl", "\"30m\""),
        ("holds.check_interval", "\"30s\""),
        ("lease.lock_delay", "\"0s\""),
        ("exec.timeout", "\"10m\""),
        ("events.retention", "\"7d\""),
        ("events.max_count", "1000000"),
        ("limits.waiters", "200000"),
        ("limits.bookings", "100000"),
        ("limits.bookings_per_principal", "100"),
        ("limits.holds_per_principal", "8"),
    ] {
        assert!(line(&format!("{start} = {value} ")).ends_with("  # default"), "{text}");
    }
    for unset in ["lease.max_total", "waiting_room.priority_aging", "bookings.no_show_after"] {
        assert!(!text.contains(unset), "nobody set {unset}:\n{text}");
    }
    assert!(line("worker.rack-2.resource.imx8-{n}.count = 3 ").contains("  # embedded lab file:"));
    assert!(line("worker.rack-1.resource.pixel-8-a.labels = { model = \"Pixel 8\"").contains("platform = \"android\""));
    let columns: Vec<_> = ["lab.name", "api.insecure"].iter().map(|key| line(key).find('#')).collect();
    assert_eq!(columns[0], columns[1]);
}
