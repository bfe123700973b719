//! `driver` and `lock_delay` of a resource, and `[exec]`.

use super::*;
use crate::model::{AdbDevice, AdbWhich, Driver, DriverKind, ExecRules, Hook, ResourceSpec};

/// A file with one resource that has this line.
fn resource(line: &str) -> String {
    lab(&format!("{WORKER}[[worker.resource]]\nid = \"a\"\n{line}"))
}

/// One whose driver says this.
fn driver(inside: &str) -> String {
    resource(&format!("driver = {{ {inside} }}"))
}

fn exec(lines: &str) -> String {
    lab(&format!("[exec]\n{lines}\n{WORKER}"))
}

/// The resources of a file in a directory of its own, and that directory.
fn resources(text: &str) -> (Vec<ResourceSpec>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.toml");
    fs::write(&path, text).unwrap();
    let effective = Effective::load(Source::File(path), home().into_iter()).unwrap_or_else(|e| panic!("{text}: {e}"));
    (effective.lab.workers[0].resources.clone(), dir)
}

fn driver_of(inside: &str) -> (Driver, tempfile::TempDir) {
    let (resources, dir) = resources(&driver(inside));
    (Driver::clone(&resources[0].driver), dir)
}

#[test]
fn a_refused_driver_names_the_line_the_key_and_the_fix() {
    let command = |rest: &str| driver(&format!("kind = \"command\", {rest}"));
    let hooked = |rest: &str| command(&format!("prepare = [\"./p\"], reset = [\"./r\"], health = [\"./h\"], {rest}"));
    let adb = |rest: &str| driver(&format!("kind = \"adb\", {rest}"));
    let argv = |text: &str| command(&format!("reset = {text}"));
    let many = format!("[{}]", "\"x\", ".repeat(65));
    let long = format!("[\"x\", \"{}\"]", "y".repeat(4_097));
    let two = |first: &str, second: &str| {
        let entry = |id: &str, rest: &str| {
            format!("[[worker.resource]]\nid = \"{id}\"\ndriver = {{ kind = \"adb\", {rest} }}\n")
        };
        lab(&format!("{WORKER}{}{}", entry("phone-a", first), entry("phone-b", second)))
    };
    refused(vec![
        (resource("drivr = {}"), &["unknown key worker.rack-1.resource.a.drivr", "a.driver?"]),
        (
            resource("driver = \"command\""),
            &["lab.toml:7: worker.rack-1.resource.a.driver: must be a table, such as {"],
        ),
        (driver(""), &["resource.a.driver.kind: is missing; write kind = \"none\", \"command\" or \"adb\""]),
        (driver("kind = \"ssh\""), &["a.driver.kind: must be \"none\", \"command\" or \"adb\", not \"ssh\""]),
        (driver("kind = 1"), &["driver.kind: must be text in quotes"]),
        (
            hooked("prepair_timeout = \"1s\""),
            &["unknown key", "driver.prepair_timeout; did you mean", "prepare_timeout?"],
        ),
        (
            driver("kind = \"none\", reset = [\"./r\"]"),
            &["driver.reset: needs a driver: kind = \"none\" has no hooks; write kind = \"command\", or leave it out"],
        ),
        (driver("kind = \"none\", timeout = \"1s\""), &["driver.timeout: needs a driver"]),
        (driver("kind = \"none\", serial = \"x\""), &["driver.serial: is of an adb device; write kind = \"adb\""]),
        (command("reset = [\"./r\"], port = 5037"), &["driver.port: is of an adb device; write kind = \"adb\""]),
        (command("reset = [\"./r\"], match = {}"), &["driver.match: is of an adb device"]),
        (
            driver("kind = \"command\""),
            &["driver.kind: is \"command\" without a command; write prepare, reset or health = [\"./…\"]"],
        ),
        (command("timeout = \"5s\""), &["driver.kind: is \"command\" without a command"]),
        (argv("\"./wipe.sh\""), &["driver.reset: must be a list: it runs without a shell; write [\"./wipe.sh\"]"]),
        (argv("\"./wipe.sh -f x\""), &["write [\"./wipe.sh\", \"-f\", \"x\"]"]),
        (argv("\"ls | wc\""), &["write [\"sh\", \"-c\", \"ls | wc\"]"]),
        (argv("\"\""), &["write [\"./wipe.sh\"]"]),
        (argv("3"), &["driver.reset: must be a list of texts"]),
        (argv("[]"), &["driver.reset: has 0 texts; write 1 to 64"]),
        (argv(&many), &["driver.reset: has 65 texts; write 1 to 64"]),
        (argv("[\"x\", 3]"), &["driver.reset: is a list of texts in quotes; 3 is none"]),
        (argv(&long), &["driver.reset: has a text of more than 4096 characters"]),
        (argv("[\"x\", \"a\\u0000b\"]"), &["driver.reset: has a text with a NUL in it"]),
        (argv("[\"\"]"), &["driver.reset: begins with an empty text"]),
        (hooked("timeout = 60"), &["driver.timeout: must be a duration in quotes", "\"60s\""]),
        (hooked("timeout = \"0s\""), &["driver.timeout: \"0s\" is out of bounds; at least 100ms, at most 1h"]),
        (
            hooked("timeout = \"3m\""),
            &["driver.timeout: 3m is longer than prepare may take (2m); write prepare_timeout = \"2m\" or less"],
        ),
        (
            hooked("timeout = \"6m\", prepare_timeout = \"1m\""),
            &["driver.timeout: 6m is longer than health may take (5m); write health_timeout = \"5m\" or less"],
        ),
        (hooked("prepare_timeout = \"121s\""), &["driver.prepare_timeout: \"121s\" is out of bounds", "at most 2m"]),
        (hooked("reset_timeout = \"61m\""), &["driver.reset_timeout: \"61m\" is out of bounds", "at most 1h"]),
        (hooked("health_timeout = \"301s\""), &["driver.health_timeout: \"301s\" is out of bounds", "at most 5m"]),
        (
            command("reset = [\"./r\"], health_timeout = \"1s\""),
            &["driver.health_timeout: there is no health; write health = [\"./…\"] beside it, or leave this out"],
        ),
        (
            command("reset = [\"./r\"], health_interval = \"1m\""),
            &["driver.health_interval: there is no health check; write health = [\"./…\"] beside it"],
        ),
        (hooked("health_interval = \"500ms\""), &["driver.health_interval: \"500ms\" is out of bounds; at least 1s"]),
        (hooked("health_interval = \"61m\""), &["driver.health_interval: \"61m\" is out of bounds", "at most 1h"]),
        (hooked("directory = \"\""), &["driver.directory: is no directory; write a path"]),
        (
            driver("kind = \"adb\""),
            &["driver.serial: is missing; write serial = \"…\" for one device, or match = { model = \"…\" }"],
        ),
        (adb("serial = \"x\", match = {}"), &["driver.match:", "a.driver.serial names the device already; leave one"]),
        (adb("serial = \"\""), &["driver.serial: \"\" is no serial; write what `adb devices` shows"]),
        (adb("serial = \" x\""), &["driver.serial: \" x\" is no serial"]),
        (adb("match = \"Pixel\""), &["driver.match: must be a table of keys and texts"]),
        (adb("match = { sdk = 34 }"), &["driver.match.sdk: must be text in quotes; write sdk = \"34\""]),
        (adb("serial = \"x\", port = 0"), &["driver.port: must be a whole number from 1 to 65535, not 0"]),
        (adb("serial = \"x\", port = 65536"), &["driver.port: must be a whole number from 1 to 65535"]),
        (
            lab(&format!(
                "{WORKER}[[worker.resource]]\nid = \"a-{{n}}\"\ncount = 2\ndriver = {{ kind = \"adb\", serial = \"x\" }}"
            )),
            &["driver.serial: is of one device, and count stands for several resources; write match = { … }"],
        ),
        (
            two("serial = \"x\"", "serial = \"x\""),
            &["lab.toml:10:", "phone-b and phone-a both stand for the device \"x\" of the adb server at port 5037"],
        ),
        (resource("lock_delay = \"61m\""), &["a.lock_delay: \"61m\" is out of bounds; at least 0s, at most 1h"]),
        (resource("lock_delay = 5"), &["a.lock_delay: must be a duration in quotes"]),
        (lab(&format!("[lease]\nlock_delay = \"2h\"\n{WORKER}")), &["lease.lock_delay: \"2h\" is out of bounds"]),
    ]);
    load(&two("serial = \"x\"", "serial = \"x\", port = 5038")).unwrap();
}

#[test]
fn a_refused_tool_names_the_line_the_key_and_the_fix() {
    let tool = |text: &str| exec(&format!("allow.adb = {text}"));
    let many: String = (0..257).map(|n| format!("allow.t{n} = [\"x\"]\n")).collect();
    refused(vec![
        (exec("timeot = \"1m\""), &["unknown key exec.timeot; did you mean exec.timeout?"]),
        (exec("timeout = \"0s\""), &["lab.toml:4: exec.timeout: \"0s\" is out of bounds; at least 1s, at most 1d"]),
        (exec("timeout = \"25h\""), &["exec.timeout: \"25h\" is out of bounds"]),
        (exec("allow = [\"adb\"]"), &["exec.allow: must be a table; write [exec.allow]"]),
        (tool("\"adb -s x\""), &["exec.allow.adb: must be a list", "write [\"adb\", \"-s\", \"x\"]"]),
        (tool("[]"), &["exec.allow.adb: has 0 texts"]),
        (exec("allow.\"a b\" = [\"x\"]"), &["exec.allow.\"a b\": \"a b\" is not a tool name"]),
        (tool("[\"adb\", \"{env.}\"]"), &["exec.allow.adb: \"{env.}\" names no value", "write {env.NAME}"]),
        (tool("[\"adb\", \"-s={env.A-B}\"]"), &["\"-s={env.A-B}\" names no value"]),
        (tool("[\"adb\", \"{env.A\"]"), &["\"{env.A\" names no value"]),
        (tool("[\"adb\", \"{ENV.A}\"]"), &["\"{ENV.A}\" names no value"]),
        (tool("[\"adb\", \"{env.1A}\"]"), &["\"{env.1A}\" names no value"]),
        (exec(&many), &["exec.allow: 257 tools; a lab has at most 256"]),
    ]);
    refused_variables(&[
        ("BERTH_EXEC__TIMEOUT", "0s", "BERTH_EXEC__TIMEOUT: exec.timeout: \"0s\" is out of bounds"),
        ("BERTH_EXEC__ALLOW", "adb", "BERTH_EXEC__ALLOW: exec.allow: is set in the lab file only"),
        ("BERTH_LEASE__LOCK_DELAY", "2h", "BERTH_LEASE__LOCK_DELAY: lease.lock_delay: \"2h\" is out of bounds"),
    ]);
}

#[test]
fn the_hooks_of_a_command_driver_are_read_with_their_times_and_run_in_the_directory_of_the_file() {
    let seconds = Duration::from_secs;
    let (driver, dir) = driver_of(
        "kind = \"command\", prepare = [\"./prepare.sh\", \"./x\"], reset = [\"wipe\"], health = [\"/bin/ping\"], \
         timeout = \"90s\", reset_timeout = \"1h\", health_interval = \"5s\"",
    );
    let program = dir.path().join("prepare.sh").to_str().unwrap().to_owned();
    let hook = |argv: &[&str], timeout| {
        Some(Hook { argv: argv.iter().map(|text| text.to_string()).collect(), timeout: seconds(timeout) })
    };
    let expected = Driver {
        kind: DriverKind::Command,
        prepare: hook(&[&program, "./x"], 90),
        reset: hook(&["wipe"], 3_600),
        health: hook(&["/bin/ping"], 90),
        health_interval: seconds(5),
        directory: Some(dir.path().to_owned()),
        ..Driver::default()
    };
    assert_eq!(driver, expected);

    let (driver, dir) = driver_of("kind = \"command\", reset = [\"bin/wipe\"], directory = \"./hooks\"");
    let reset = driver.reset.unwrap();
    assert_eq!(driver.directory, Some(dir.path().join("hooks")));
    assert_eq!(
        (reset.argv[0].as_str(), reset.timeout),
        (dir.path().join("hooks/bin/wipe").to_str().unwrap(), seconds(60))
    );
    let (driver, _dir) = driver_of("kind = \"command\", reset = [\"./wipe\"], directory = \"/srv\"");
    assert_eq!((driver.directory, driver.reset.unwrap().argv), (Some("/srv".into()), vec!["/srv/wipe".to_owned()]));
    let (driver, _dir) = driver_of("kind = \"command\", reset = [\"./wipe\"], timeout = \"1h\"");
    assert_eq!(driver.reset.unwrap().timeout, seconds(3_600));
}

#[test]
fn a_device_of_an_adb_server_is_named_by_its_serial_or_by_what_it_is() {
    let (driver, _dir) = driver_of("kind = \"adb\", serial = \"emulator-5554\"");
    let device = |port, which| DriverKind::Adb(AdbDevice { port, which });
    assert_eq!(driver.kind, device(5037, AdbWhich::Serial("emulator-5554".to_owned())));
    assert_eq!((driver.health_interval, driver.directory), (Duration::from_secs(30), None));
    let text = "[[worker.resource]]\nid = \"p-{n}\"\ncount = 2\ndriver = { kind = \"adb\", port = 15037, \
                match = { model = \"Pixel 8\" }, health_interval = \"10s\", reset = [\"./wipe\"] }";
    let (resources, dir) = resources(&lab(&format!("{WORKER}{text}")));
    let labels = [("model".parse().unwrap(), "Pixel 8".parse().unwrap())].into_iter().collect();
    for resource in &resources {
        assert_eq!(resource.driver.kind, device(15_037, AdbWhich::Match(Clone::clone(&labels))));
        assert_eq!(resource.driver.health_interval, Duration::from_secs(10));
        assert_eq!(resource.driver.directory.as_deref(), Some(dir.path()));
    }
    assert_eq!(resources.len(), 2);
    let (driver, _dir) = driver_of("kind = \"adb\", match = {}");
    assert_eq!(driver.kind, device(5037, AdbWhich::Match(Default::default())));
    let (driver, _dir) = driver_of("kind = \"none\"");
    assert_eq!(driver, Driver::default());
}

#[test]
fn the_examples_of_the_built_in_file_are_right() {
    let text = include_str!("../../../config/lab.toml");
    let examples: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# driver = ")).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        load(&resource(&format!("driver = {example}"))).unwrap_or_else(|error| panic!("{example}: {error}"));
    }
    let lines = ["# lock_delay = ", "# timeout = \"10m\"", "# [exec.allow]", "# adb = "];
    let mut used = 0;
    let shown = |line: &str| lines.iter().any(|start| line.starts_with(start));
    let mut uncommented = String::new();
    for line in text.lines() {
        let live = shown(line);
        used += usize::from(live);
        uncommented.push_str(if live { &line[2..] } else { line });
        uncommented.push('\n');
    }
    assert_eq!(used, 5, "the delay stands in two places");
    let lab = load(&uncommented).unwrap().lab;
    assert_eq!((lab.rules.exec.allow.len(), lab.workers[1].resources[0].lock_delay.as_secs()), (1, 30));
}

#[test]
fn a_lock_delay_is_the_labs_unless_the_resource_has_its_own() {
    let text = |rest: &str| {
        let own = "[[worker.resource]]\nid = \"b\"\nlock_delay = \"0s\"";
        lab(&format!("{rest}{WORKER}[[worker.resource]]\nid = \"a\"\n{own}"))
    };
    let delays = |text: &str, env: &[(&str, &str)]| {
        let lab = load_with(text, env).unwrap().lab;
        lab.workers[0].resources.iter().map(|resource| resource.lock_delay.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(delays(&text(""), &[]), [0, 0]);
    assert_eq!(delays(&text("[lease]\nlock_delay = \"30s\"\n"), &[]), [30, 0]);
    assert_eq!(delays(&text(""), &[("BERTH_LEASE__LOCK_DELAY", "1m")]), [60, 0]);
}

#[test]
fn tools_are_read_with_their_programs_and_places() {
    let text = exec(
        "timeout = \"1m\"\n[exec.allow]\nadb = [\"adb\", \"-s\", \"{env.ANDROID_SERIAL}\"]\n\
         flash = [\"./flash.sh\", \"{n}\", \"{}{env.A_1}{env._b}\"]",
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.toml");
    fs::write(&path, &text).unwrap();
    let effective = Effective::load(Source::File(path), home().into_iter()).unwrap();
    let flash = dir.path().join("flash.sh").to_str().unwrap().to_owned();
    let texts = |argv: &[&str]| argv.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let allow = [
        ("adb".parse().unwrap(), texts(&["adb", "-s", "{env.ANDROID_SERIAL}"])),
        ("flash".parse().unwrap(), texts(&[&flash, "{n}", "{}{env.A_1}{env._b}"])),
    ];
    let expected = ExecRules { timeout: Duration::from_secs(60), allow: allow.into_iter().collect() };
    assert_eq!(effective.lab.rules.exec, expected);
    let hour = load_with(&text, &[("BERTH_EXEC__TIMEOUT", "1h")]).unwrap();
    assert_eq!(hour.lab.rules.exec.timeout, Duration::from_secs(3_600));
    assert_eq!(*origin(&hour, "exec.timeout"), Origin::Environment("BERTH_EXEC__TIMEOUT".to_owned()));
}

#[test]
fn config_check_shows_what_a_driver_does() {
    let text = "[lease]\nlock_delay = \"1m\"\n[exec]\nallow.adb = [\"adb\"]\n[[worker]]\nname = \"rack-1\"\n\
                [[worker.resource]]\nid = \"a\"\nlock_delay = \"5s\"\n\
                driver = { kind = \"command\", reset = [\"./wipe\", \"a b\"], health = [\"ping\"], timeout = \"5s\", \
                health_timeout = \"1s\" }\n\
                [[worker.resource]]\nid = \"b\"\ndriver = { kind = \"adb\", serial = \"x\" }\n";
    let effective = load(&lab(text)).unwrap();
    let value = |key: &str| {
        let found = effective.values.iter().find(|value| value.key == key).unwrap_or_else(|| panic!("no {key}"));
        let line = match &found.origin {
            Origin::File { line, .. } => *line,
            _ => 0,
        };
        (found.value.as_str(), line)
    };
    let a = |key: &str| value(&format!("worker.rack-1.resource.a.{key}"));
    let b = |key: &str| value(&format!("worker.rack-1.resource.b.driver.{key}"));
    assert_eq!(value("lease.lock_delay"), ("\"1m\"", 4));
    assert_eq!(value("exec.timeout"), ("\"10m\"", 0));
    assert_eq!(value("exec.allow.adb"), ("[\"adb\"]", 6));
    assert_eq!(a("lock_delay"), ("\"5s\"", 11));
    assert_eq!(a("driver.kind"), ("\"command\"", 12));
    assert_eq!(a("driver.reset"), ("[\"./wipe\", \"a b\"]", 12));
    assert_eq!((a("driver.reset_timeout"), a("driver.health_timeout")), (("\"5s\"", 12), ("\"1s\"", 12)));
    assert_eq!(a("driver.health_interval"), ("\"30s\"", 0));
    assert_eq!((b("serial"), b("port"), b("health_interval")), (("\"x\"", 15), ("5037", 0), ("\"30s\"", 0)));
}
