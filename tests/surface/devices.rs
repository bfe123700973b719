//! Devices through the real program (SPEC §7): every state and every way out of it, by hooks that do what a test says, are
//! written down, and tell when two of them run on one device at once.

mod around;
mod claims;
mod cooling;
mod failed;
mod health;
mod killed;
mod many;
mod reset;
mod stopped;
mod storm;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::http::Door;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::{events, text};

/// A hook. It writes down that it begins and ends, and does what the test has planned for it in between. The lock is open in
/// everything that it starts, so a hook that finds it taken runs beside something of a former one.
const HOOK: &str = r#"#!/bin/sh
say() { echo "$hook $BERTH_RESOURCE ${BERTH_LEASE:--} ${BERTH_FENCE:--} $$ $1" >> log; }
hook=$1
exec 9> "lock.$BERTH_RESOURCE"
flock -n 9 || say beside
say begin
plan="plan.$BERTH_RESOURCE.$hook"
if [ -f "$plan" ]; then . "./$plan"; fi
say end
"#;

/// What a hook does that waits until the test takes the plan back.
const WAITS: &str = "while [ -f \"$plan\" ]; do sleep 0.02; done";

/// What a hook does that fails with some words.
const FAILS: &str = "echo no such device; say end; exit 3";

/// What a hook does that never ends and wants to survive: it ignores what asks it to, and so does somebody in a session
/// of its own.
const CLINGS: &str = "trap '' TERM HUP INT\n\
    setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > clinging; exec sleep 1000' &\n\
    echo $$ > clung\nwhile true; do sleep 1; done";

/// A resource of the lab file with hooks of these kinds, as `prepare reset`, and more of its driver and of itself.
fn resource(id: &str, hooks: &str, driver: &str, more: &str) -> String {
    let hooks: Vec<String> =
        hooks.split_whitespace().map(|hook| format!("{hook} = [\"./hook.sh\", \"{hook}\"]")).collect();
    let (hooks, driver) = (hooks.join(", "), if driver.is_empty() { String::new() } else { format!(", {driver}") });
    format!(
        "[[worker.resource]]\nid = \"{id}\"\nlabels = {{ platform = \"linux\", os = \"14\" }}\n{more}\n\
         driver = {{ kind = \"command\", {hooks}{driver} }}\n\n"
    )
}

/// A host with these resources, ready, with more lines in its lab file.
fn rig(resources: &[String], settings: &str) -> Lab {
    let worker = "[lab]\nname = \"test\"\n\n[[worker]]\nname = \"host\"\napi = \"127.0.0.1:<host>\"\n\n";
    let mut lab = Lab::new(&format!("{worker}{}{settings}\n", resources.concat()));
    script(&lab, "hook.sh", HOOK);
    lab.start("host");
    lab.wait_ready("host");
    lab
}

/// One resource, called `board`, with a prepare and a reset.
fn board() -> Lab {
    rig(&[resource("board", "prepare reset", "", "")], "")
}

/// A program beside the lab file.
fn script(lab: &Lab, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(lab.path(name), text).unwrap();
    fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn restart(lab: &mut Lab) {
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
}

fn plan_of(lab: &Lab, resource: &str, hook: &str) -> PathBuf {
    lab.path(&format!("plan.{resource}.{hook}"))
}

/// From now on the hook does this. A hook that has begun does what it had found.
fn plan(lab: &Lab, resource: &str, hook: &str, what: &str) {
    let made = lab.path("plan");
    fs::write(&made, format!("{what}\n")).unwrap();
    fs::rename(made, plan_of(lab, resource, hook)).unwrap();
}

/// From now on the hook does nothing; one that waits ends.
fn let_go(lab: &Lab, resource: &str, hook: &str) {
    fs::remove_file(plan_of(lab, resource, hook)).unwrap();
}

/// A line of what the hooks have written down.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    hook: String,
    resource: String,
    lease: String,
    fence: String,
    pid: i32,
    what: String,
}

/// What the hooks have written down, in order. Never is one beside another on one device.
#[track_caller]
fn log(lab: &Lab) -> Vec<Line> {
    let written = fs::read_to_string(lab.path("log")).unwrap_or_default();
    let lines = written.lines().map(|line| {
        let [hook, resource, lease, fence, pid, what] =
            line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        Line { hook, resource, lease, fence, pid: pid.parse().unwrap(), what }
    });
    let lines: Vec<Line> = lines.collect();
    assert!(lines.iter().all(|line| line.what != "beside"), "two at once: {lines:#?}");
    lines
}

/// The same as words, `prepare begin`, of one resource.
#[track_caller]
fn run(lab: &Lab, resource: &str) -> Vec<String> {
    let lines = log(lab).into_iter().filter(|line| line.resource == resource);
    lines.map(|line| format!("{} {}", line.hook, line.what)).collect()
}

/// Waits until a hook has begun, or ended, so often on a resource; that line.
#[track_caller]
fn wait_for(lab: &Lab, resource: &str, hook: &str, what: &str, count: usize) -> Line {
    eventually(&format!("{hook} {what} on {resource}, {count} times"), BOUND, || {
        let is_it = |line: &Line| (&*line.resource, &*line.hook, &*line.what) == (resource, hook, what);
        log(lab).into_iter().filter(is_it).nth(count - 1)
    })
}

/// A resource as somebody is shown it.
#[track_caller]
fn shown(door: &Door, resource: &str) -> Value {
    door.get(&format!("/v1/resources/{resource}")).expect(200).body["resource"].take()
}

/// Waits until a resource is in a state; it then.
#[track_caller]
fn wait_state(lab: &Lab, resource: &str, state: &str) -> Value {
    let door = lab.door("host");
    eventually(&format!("{resource} is {state}"), BOUND, || {
        Some(shown(&door, resource)).filter(|shown| shown["state"] == state)
    })
}

/// The moves of a resource from state to state.
#[track_caller]
fn moves(lab: &Lab, resource: &str) -> Vec<Value> {
    let all = events(&lab.door("host"), "resource.state-changed");
    all.into_iter().map(|event| event["payload"].clone()).filter(|it| it["resourceId"] == resource).collect()
}

/// The same as words, each with its reason.
#[track_caller]
fn told(lab: &Lab, resource: &str) -> Vec<String> {
    let told = |it: Value| format!("{} -> {}: {}", text(&it["from"]), text(&it["to"]), text(&it["reason"]));
    moves(lab, resource).into_iter().map(told).collect()
}
