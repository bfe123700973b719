//! A start that cannot be: the key or the file by its name, the fix, exit 2, and nothing is left open (SPEC §8, §14).

use std::fs;
use std::net::{TcpListener, UdpSocket};

use serde_json::Value;

use crate::lab::{FLEET, Lab};
use crate::ports::is_free;

/// Runs `berth up`, which must refuse to; what it said, on one line.
#[track_caller]
fn refused(lab: &Lab, more: &[&str]) -> String {
    let file = lab.file();
    let said = lab.berth(&[&["up", "--config", file.to_str().unwrap()], more].concat()).failed(2);
    // What the log says comes before, as JSON; the reason is the last line.
    let reason = said.lines().last().unwrap_or_default();
    let words = reason.strip_prefix("error BAD_REQUEST: ").unwrap_or_else(|| panic!("{said}"));
    words.to_owned()
}

/// Panics unless every port of the lab but those in `taken` is free, and no node is registered.
#[track_caller]
fn nothing_listens(lab: &Lab, taken: &[&str]) {
    for name in ["gateway", "link", "rack-1", "rack-2"] {
        assert!(taken.contains(&name) || is_free(lab.port(name)), "{name} still listens");
    }
    let live = fs::read_dir(lab.path("berth/.live")).into_iter().flatten().count();
    assert_eq!(live, 0, "nodes that do not run are registered");
}

#[test]
fn a_wrong_lab_file_is_refused_with_its_line_its_key_and_the_fix() {
    let with = |from: &str, to: &str| FLEET.replacen(from, to, 1);
    let section = |name: &str, line: &str| format!("{FLEET}\n[{name}]\n{line}\n");
    let lease = |line: &str| section("lease", line);
    let counted = with("\"twin\"", "\"pixel-{n}\"\ncount = 2").replacen("pixel-b", "pixel-2", 1);
    // The file, what stands on its wrong line, and the words about it.
    let table: Vec<(String, &str, &[&str])> = vec![
        (with("\nlink =", "\nlinc ="), "linc", &["unknown key gateway.linc; did you mean gateway.link?"]),
        (with("[gateway]", "[gatewy]"), "gatewy", &["unknown key gatewy; did you mean gateway?"]),
        (
            with("max_shared", "max_share"),
            "max_share",
            &["unknown key worker.rack-2.resource.bench.max_share", "max_shared?"],
        ),
        (lease("max_tll = \"1h\""), "max_tll", &["unknown key lease.max_tll; did you mean lease.max_ttl?"]),
        (lease("default_ttl = 15"), "default_ttl", &["lease.default_ttl: must be a duration in quotes", "\"15m\""]),
        (lease("default_ttl = \"15\""), "default_ttl", &["lease.default_ttl: \"15\" is no duration", "\"15m\""]),
        (lease("default_ttl = \"15 parsecs\""), "parsecs", &["lease.default_ttl: \"15 parsecs\" is no duration"]),
        (lease("max_ttl = \"1m\""), "1m", &["lease.default_ttl (15m) is longer than lease.max_ttl (1m)"]),
        (
            lease("max_total = \"1m\""),
            "1m",
            &["lease.max_total (1m) is shorter than lease.default_ttl (15m); raise it"],
        ),
        (
            section("waiting_room", "waiter_tll = \"1m\""),
            "waiter_tll",
            &["unknown key waiting_room.waiter_tll; did you mean waiting_room.waiter_ttl?"],
        ),
        (
            section("waiting_room", "admission_grace = \"2d\""),
            "admission_grace",
            &["waiting_room.admission_grace: \"2d\" is out of bounds; at least 0s, at most 1d"],
        ),
        (
            section("waiting_room", "priority_aging = 10"),
            "priority_aging",
            &["waiting_room.priority_aging: must be a duration in quotes", "\"10s\""],
        ),
        (
            section("events", "max_count = 0"),
            "max_count",
            &["events.max_count: must be a whole number from 1 to 100000000, not 0"],
        ),
        (
            section("bookings", "mode = \"strict\""),
            "strict",
            &["bookings.mode: must be \"advisory\" or \"enforced\", not \"strict\""],
        ),
        (
            section("bookings", "max_duration = \"367d\""),
            "max_duration",
            &["bookings.max_duration: \"367d\" is out of bounds; at least 1m, at most 366d"],
        ),
        (
            section("holds", "max_ttl = \"5m\""),
            "max_ttl",
            &["holds.default_ttl (10m) is longer than holds.max_ttl (5m); change one of them"],
        ),
        (
            section("holds", "check_intervall = \"5m\""),
            "check_intervall",
            &["unknown key holds.check_intervall; did you mean holds.check_interval?"],
        ),
        (
            section("limits", "holds_per_principal = 0"),
            "holds_per",
            &["limits.holds_per_principal: must be a whole number from 1 to 10000, not 0"],
        ),
        (
            with("max_shared = 2", "bookings = { mode = \"off\" }"),
            "off",
            &["worker.rack-2.resource.bench.bookings.mode: must be \"advisory\" or \"enforced\", not \"off\""],
        ),
        (
            section("limits", "waiters = 200001"),
            "waiters",
            &["limits.waiters: must be a whole number from 1 to 200000, not 200001"],
        ),
        (
            lease("max_per_requester = \"2\""),
            "max_per",
            &["lease.max_per_requester: must be a whole number, without quotes"],
        ),
        (with("max_shared = 2", "max_shared = 0"), "= 0", &["bench.max_shared: must be a whole number from 1 to 256"]),
        (with("pixel-a", "pixel-b"), "pixel-b", &["pixel-b is also a resource at", "give it another id"]),
        (counted, "pixel-{n}", &["pixel-2 is also a resource at", "give it another id"]),
        (
            with("rack-2\"\n", "rack-1\"\n"),
            "name = \"rack-1",
            &["is called rack-1 too; every node needs a name of its own"],
        ),
        (with("os = \"15\"", "os = 15"), "os = 15", &["labels.os: must be text in quotes; write os = \"15\""]),
        (with("127.0.0.1:<gateway>", "0.0.0.0:<gateway>"), "0.0.0.0", &["gateway.api: ", "or set api.insecure = true"]),
        (
            with("127.0.0.1:<link>", "localhost"),
            "localhost",
            &["gateway.link: \"localhost\" is no address to listen on"],
        ),
        (with("name = \"test\"", "name = \"Test\""), "Test", &["lab.name: \"Test\" is not a lab name"]),
        (with("name = \"test\"", "name = test"), "= test", &["not valid TOML"]),
    ];
    for (text, wrong, expected) in table {
        // Where two lines contradict each other, the second one is wrong.
        let line = 1 + text[..text.rfind(wrong).unwrap()].matches('\n').count();
        // Every name of the whole file has its port, also where the wrong line has lost it.
        let lab = Lab::new(&format!("{text}\n#<gateway><link><rack-1><rack-2>"));
        let words = refused(&lab, &[]);
        for part in expected {
            assert!(words.contains(part), "{words}\n  lacks {part}");
        }
        assert!(words.contains(&format!("lab.toml:{line}: ")), "line {line}: {words}");
        nothing_listens(&lab, &[]);
        assert!(!lab.path("berth").exists(), "a wrong file makes nothing on disk: {words}");
        let checked = lab.berth(&["config", "check", "--config", lab.file().to_str().unwrap()]).failed(2);
        assert_eq!(checked.trim_end(), format!("error BAD_REQUEST: {words}"), "the check says the same");
    }
}

#[test]
fn a_file_or_a_node_that_is_not_there_is_named() {
    let lab = Lab::new(FLEET);
    let said = lab.berth(&["up", "--config", "no/such.toml"]).failed(2);
    assert!(said.contains("no/such.toml; name one that exists with --config"), "{said}");
    let words = refused(&lab, &["--node", "rack-9"]);
    assert!(words.contains("no node rack-9; it has gateway, rack-1, rack-2"), "{words}");
    nothing_listens(&lab, &[]);
}

#[test]
fn a_port_in_use_is_named_by_its_key_and_nothing_else_stays_open() {
    for (name, key) in [("gateway", "gateway.api"), ("rack-2", "worker.rack-2.api"), ("link", "gateway.link")] {
        let lab = Lab::new(FLEET);
        let address = format!("127.0.0.1:{}", lab.port(name));
        let _taken: Box<dyn std::any::Any> = match name {
            "link" => Box::new(UdpSocket::bind(&address).unwrap()),
            _ => Box::new(TcpListener::bind(&address).unwrap()),
        };
        let words = refused(&lab, &[]);
        assert!(words.starts_with(&format!("{key}: ")), "{words}");
        for part in [address.as_str(), "another process", "stop it or change the key"] {
            assert!(words.contains(part), "{words}\n  lacks {part}");
        }
        nothing_listens(&lab, &[name]);
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_by_its_file_and_nothing_listens() {
    // A first run makes good files, which a second lab uses as its own.
    let mut first = Lab::apart(FLEET, &["gateway", "rack-1", "rack-2"]);
    for node in ["gateway", "rack-1", "rack-2"] {
        assert!(first.terminate(node).success());
    }
    let section = |ca: &str, cert: &str, key: &str| {
        let path = |relative: &str| first.path("berth/test").join(relative).display().to_string();
        format!("{FLEET}\n[pki]\nca = \"{}\"\ncert = \"{}\"\nkey = \"{}\"\n", path(ca), path(cert), path(key))
    };
    let (ca, cert, key) = ("ca.crt", "{node}/node.crt", "{node}/node.key");
    fs::write(first.path("berth/test/nonsense"), "nonsense").unwrap();
    let table: &[(String, &[&str])] = &[
        (section("none.crt", cert, key), &["none.crt: check that it is there and that this user may read it"]),
        (section(ca, "{node}/none.crt", key), &["gateway/none.crt: check that it is there"]),
        (section(ca, cert, "{node}/.."), &["gateway/..: check that it is there"]),
        (section(ca, cert, "{node}/none.key"), &["gateway/none.key: check that it is there"]),
        (section("nonsense", cert, key), &["nonsense: holds no PEM certificate"]),
        (section(ca, "{node}/../nonsense", key), &["nonsense: holds no PEM certificate"]),
        (section(ca, cert, "{node}/../nonsense"), &["nonsense: holds no PEM private key"]),
        (section(ca, cert, "{node}/../rack-1/node.key"), &["rack-1/node.key: does not fit the certificate"]),
        (
            section(ca, "{node}/../rack-1/node.crt", key),
            &["berth://test/worker/rack-1; this node is berth://test/gateway/gateway"],
        ),
        (section(ca, "gateway/node.crt", key), &["pki.cert is one file for every node", "write {node} in its path"]),
    ];
    for (text, expected) in table {
        let lab = Lab::new(text);
        let words = refused(&lab, &[]);
        for part in *expected {
            assert!(words.contains(part), "{words}\n  lacks {part}");
        }
        nothing_listens(&lab, &[]);
    }
    let half = Lab::new(&format!("{FLEET}\n[pki]\nca = \"ca.crt\"\n"));
    assert!(refused(&half, &[]).contains("pki.cert: is missing; [pki] needs ca, cert and key"));
    // The same files, whole, make a lab.
    let good = Lab::joined(&section(ca, cert, key), "gateway");
    good.berth(&["lease", "--platform", "android"]).ok();
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named_with_its_key() {
    let mut lab = Lab::new(FLEET);
    let deep = lab.path(&"deep".repeat(30));
    let file = lab.file();
    // A Unix socket's path is short; and what is a file is no directory.
    for (dir, words) in
        [(&deep, "is too long for the system; choose a shorter lab.state_dir"), (&file, "check lab.state_dir")]
    {
        lab.set("BERTH_LAB__STATE_DIR", dir.to_str().unwrap());
        let said = refused(&lab, &[]);
        assert!(said.contains(dir.to_str().unwrap()) && said.contains(words), "{said}");
        nothing_listens(&lab, &[]);
    }
}

#[test]
fn a_node_that_runs_already_is_not_started_twice() {
    let lab = Lab::joined(FLEET, "gateway");
    let lease = lab.berth(&["lease", "acquire", "bench", "--lease-id", "mine"]).ok();
    for more in [&[][..], &["--node", "gateway"], &["--node", "rack-2"]] {
        let words = refused(&lab, more);
        let node = more.last().unwrap_or(&"gateway");
        assert!(words.contains(&format!("node {node} is already running on this machine")), "{words}");
        assert!(words.contains(&format!("berth/test/{node}/lock")), "{words}");
    }
    assert!(lease.starts_with("leased mine bench "), "{lease}");
    lab.berth(&["lease", "renew", "mine"]).ok();
}

#[test]
fn config_check_shows_every_value_and_where_it_comes_from() {
    let mut lab = Lab::new(FLEET);
    lab.set("BERTH_LEASE__MAX_TTL", "8h");
    lab.set("BERTH_GATEWAY__API", "127.0.0.1:4799");
    lab.set("BERTH_WAITING_ROOM__ADMISSION_GRACE", "30s");
    lab.set("BERTH_WAITING_ROOM__WAITER_TTL", "3m");
    lab.set("LEASE_WAITER_TTL_SECONDS", "90");
    lab.set("BERTH_BOOKINGS__MODE", "enforced");
    let file = lab.file();
    let check = ["config", "check", "--config", file.to_str().unwrap()];
    let text = lab.berth(&check).ok();
    let origin = |key: &str, value: &str| {
        let start = format!("{key} = {value} ");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {start}:\n{text}"));
        line.rsplit_once("  # ").unwrap_or_else(|| panic!("{line}")).1.to_owned()
    };
    assert_eq!(origin("lease.max_ttl", "\"8h\""), "BERTH_LEASE__MAX_TTL");
    assert_eq!(origin("gateway.api", "\"127.0.0.1:4799\""), "BERTH_GATEWAY__API");
    assert_eq!(origin("lease.default_ttl", "\"15m\""), "default");
    assert_eq!(origin("waiting_room.admission_grace", "\"30s\""), "BERTH_WAITING_ROOM__ADMISSION_GRACE");
    assert_eq!(origin("waiting_room.waiter_ttl", "\"1m30s\""), "LEASE_WAITER_TTL_SECONDS");
    assert_eq!(origin("bookings.mode", "\"enforced\""), "BERTH_BOOKINGS__MODE");
    assert_eq!(origin("holds.check_interval", "\"30s\""), "default");
    assert_eq!(origin("events.retention", "\"7d\""), "default");
    assert_eq!(origin("limits.waiters", "200000"), "default");
    assert_eq!(origin("lab.name", "\"test\""), format!("{}:3", file.display()));
    let line = 1 + FLEET[..FLEET.find("max_shared").unwrap()].matches('\n').count();
    assert_eq!(origin("worker.rack-2.resource.bench.max_shared", "2"), format!("{}:{line}", file.display()));
    let json: Value = serde_json::from_str(&lab.berth(&[&["--json"], &check[..]].concat()).ok()).unwrap();
    let values = json["values"].as_array().unwrap();
    let max = values.iter().find(|value| value["key"] == "lease.max_ttl").unwrap();
    assert_eq!(max["origin"], "BERTH_LEASE__MAX_TTL", "{max}");
    assert!(values.iter().all(|value| value["origin"].as_str().is_some_and(|it| !it.is_empty())));
    nothing_listens(&lab, &[]);
    assert!(!lab.path("berth").exists(), "a check makes nothing");

    lab.set("LEASE_WAITER_TTL_SECONDS", "5m");
    let said = lab.berth(&check).failed(2);
    let words = "error BAD_REQUEST: LEASE_WAITER_TTL_SECONDS: waiting_room.waiter_ttl: must be whole seconds";
    assert!(said.starts_with(words), "{said}");
    lab.set("LEASE_WAITER_TTL_SECONDS", "90");
    lab.set("BERTH_LEASE__MAX_TTL", "8 parsecs");
    let said = lab.berth(&check).failed(2);
    assert!(said.starts_with("error BAD_REQUEST: BERTH_LEASE__MAX_TTL: lease.max_ttl: "), "{said}");
    lab.set("BERTH_LEASE__MAX_TTL", "8h");
    lab.set("BERTH_LEASE__MAX_TLL", "8h");
    let said = lab.berth(&check).failed(2);
    assert!(said.contains("BERTH_LEASE__MAX_TLL: unknown key lease.max_tll; did you mean lease.max_ttl?"), "{said}");
    let embedded = Lab::new("").berth(&["config", "check"]).ok();
    assert!(embedded.contains("# embedded lab file:"), "{embedded}");
}
