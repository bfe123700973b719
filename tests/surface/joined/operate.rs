//! The commands that look after leases, resources, workers and tokens. They find the gateway by themselves.

use serde_json::Value;

use crate::lab::{FLEET, Lab};

fn json(lab: &Lab, arguments: &[&str]) -> Value {
    let text = lab.berth(&[&["--json"], arguments].concat()).ok();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_lease_is_taken_shown_renewed_and_released() {
    let lab = Lab::joined(FLEET, "gateway");
    let said =
        lab.berth(&["lease", "acquire", "pixel-a", "--lease-id", "mine", "--duration", "10m", "--note", "x y"]).ok();
    assert!(said.starts_with("leased mine pixel-a until 20") && said.lines().count() == 1, "{said}");
    let list = lab.berth(&["lease", "list"]).ok();
    let row = list.lines().nth(1).unwrap_or_else(|| panic!("{list}"));
    for part in ["mine", "pixel-a", "rack-1", "admin", "exclusive", "x y"] {
        assert!(row.contains(part), "{list}\n  lacks {part}");
    }
    let before = json(&lab, &["lease", "show", "mine"])["lease"].take();
    assert_eq!((&before["id"], &before["ttlMs"]), (&"mine".into(), &600_000.into()));
    let fence = before["fence"].to_string();
    let said = lab.berth(&["lease", "renew", "mine", "--ttl", "1h", "--fence", &fence]).ok();
    assert!(said.starts_with("renewed mine pixel-a until "), "{said}");
    let after = json(&lab, &["lease", "list"])["leases"][0].take();
    assert_eq!(after["ttlMs"], 3_600_000, "the new width is the lease's own from now on");
    assert!(after["expiresInMs"].as_u64() > Some(3_500_000), "{after}");
    assert_eq!(after["fence"], before["fence"]);
    assert_eq!(lab.berth(&["lease", "release", "mine"]).ok(), "Lease mine released\n");
    let none = lab.berth(&["lease", "list"]);
    assert_eq!((none.exit, none.err.as_str()), (0, "no leases\n"), "{none:?}");
}

#[test]
fn status_resources_and_workers_are_those_of_the_whole_lab() {
    let lab = Lab::joined(FLEET, "gateway");
    lab.berth(&["lease", "acquire", "bench", "--lease-id", "mine"]).ok();
    let status = lab.berth(&["status"]).ok();
    for part in ["gateway (gateway), ready", "5: 4 available, 1 leased", "rack-1", "rack-2", "connected"] {
        assert!(status.contains(part), "{status}\n  lacks {part}");
    }
    let resources = lab.berth(&["resource", "list"]).ok();
    let bench = resources.lines().find(|line| line.starts_with("bench")).unwrap_or_else(|| panic!("{resources}"));
    for part in ["rack-2", "leased", "board=imx8", "mine (admin)"] {
        assert!(bench.contains(part), "{resources}\n  lacks {part}");
    }
    assert_eq!(resources.lines().count(), 6, "{resources}");
    let some = json(&lab, &["resource", "list", "--select", "platform=android,os>=14"]);
    assert_eq!((some["resources"].as_array().map(Vec::len), &some["resources"][0]["id"]), (Some(1), &"pixel-a".into()));
    let sheet = lab.berth(&["resource", "show", "rack-2/twin"]).ok();
    assert!(sheet.contains("twin") && sheet.contains("available"), "{sheet}");
    let workers = json(&lab, &["worker", "list"])["workers"].take();
    let shown: Vec<_> =
        workers.as_array().unwrap().iter().map(|it| (&it["name"], &it["connection"], &it["resources"])).collect();
    let (one, two, connected) = ("rack-1".into(), "rack-2".into(), "connected".into());
    assert_eq!(shown, [(&one, &connected, &3.into()), (&two, &connected, &2.into())]);
    // A worker of the lab is asked by its name.
    let own = lab.berth(&["--via", "test@rack-2", "status"]).ok();
    assert!(own.contains("rack-2 (worker), ready") && own.contains("2: 1 available, 1 leased"), "{own}");
    let said = lab.berth(&["--via", "test@rack-2", "worker", "list"]).failed(2);
    assert!(said.starts_with("error UNSUPPORTED_ON_WORKER: "), "{said}");
}

#[test]
fn a_token_is_made_listed_without_its_secret_and_revoked() {
    let lab = Lab::joined(FLEET, "gateway");
    let made = lab.berth(&["token", "create", "--name", "ci", "--role", "agent"]);
    assert!(made.err.contains("its secret is not shown again"), "{made:?}");
    let secret = made.ok().trim_end().to_owned();
    assert!(secret.starts_with("bth_"), "stdout is the secret and nothing else: {secret}");
    let as_ci = |arguments: &[&str]| {
        let mut command = lab.command();
        command.args(arguments).env("BERTH_TOKEN", &secret);
        command.env("BERTH_URL", format!("http://127.0.0.1:{}", lab.port("gateway")));
        lab.finish(command)
    };
    as_ci(&["--requester", "job-1", "lease", "acquire", "pixel-a", "--lease-id", "mine"]).ok();
    let list = lab.berth(&["token", "list"]).ok();
    let row = list.lines().find(|line| line.contains(" ci ")).unwrap_or_else(|| panic!("{list}"));
    let id = row.split_whitespace().next().unwrap();
    assert!(id.starts_with("tok_") && row.contains("agent") && !list.contains(&secret), "{list}");
    assert_eq!(lab.berth(&["token", "revoke", id]).ok(), format!("revoked {id} of ci\n"));
    let said = as_ci(&["lease", "list"]).failed(3);
    assert!(said.starts_with("error UNAUTHENTICATED: "), "{said}");
    assert!(lab.berth(&["lease", "list"]).ok().contains("ci/job-1"), "its leases stay");
    let said = lab.berth(&["token", "create", "--name", "ci", "--role", "agent"]).failed(2);
    assert!(said.starts_with("error BAD_REQUEST: name: "), "a name is never used twice: {said}");
}
