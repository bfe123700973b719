//! A node that is killed again and again, at any moment, under callers that only retry: whoever gets the device finds it
//! prepared, and nobody gets it before it was reset after the one before.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Line, log, plan, resource, rig, wait_state};
use crate::http::{Call, Door};
use crate::patience::{BOUND, eventually};
use crate::waiting::storm::{get, send};
use crate::waiting::{events, principal, text};

const CALLERS: usize = 4;
const TURNS: usize = 12;
const KILLS: usize = 12;

#[test]
fn a_device_of_a_node_that_is_killed_again_and_again_is_prepared_before_every_lease_and_reset_after_it() {
    let mut lab = rig(
        &[resource("board", "prepare reset health", "health_interval = \"1s\"", "")],
        "[waiting_room]\nreturn_grace = \"200ms\"",
    );
    for hook in ["prepare", "reset"] {
        plan(&lab, "board", hook, "sleep 0.04");
    }
    let doors: Vec<Door> = (0..CALLERS).map(|caller| principal(&lab, &format!("caller-{caller}"), "agent")).collect();
    let (done, fences) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for (caller, door) in doors.iter().enumerate() {
            let (done, fences) = (&done, &fences);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let lease = get(door, &format!("turn-{turn}"), (caller + turn) % 2 == 0);
                    fences.lock().unwrap().push(lease["fence"].as_u64().unwrap());
                    // Long enough for a kill to come in between now and then.
                    thread::sleep(Duration::from_millis(20));
                    let path = format!("/v1/leases/{}", text(&lease["id"]));
                    let told = send(door, &Call { method: "DELETE", path: &path, ..Call::default() });
                    // The answer to the first try may have been lost.
                    if told.status != 200 {
                        assert_eq!(told.refused("UNKNOWN_LEASE", 404).details()["reason"], "explicit");
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for kill in 0..KILLS {
            eventually("some turns are over", 2 * BOUND, || {
                (done.load(Ordering::SeqCst) >= kill * CALLERS * TURNS / (KILLS + 1)).then_some(())
            });
            // Another moment of what is done around a lease each time.
            thread::sleep(Duration::from_millis(13 * kill as u64));
            lab.kill_9("host");
            lab.start("host");
            lab.wait_ready("host");
        }
    });
    wait_state(&lab, "board", "available");
    let (leases, admin) = (fences.into_inner().unwrap(), lab.door("host"));
    assert_eq!(leases.len(), CALLERS * TURNS);
    let granted: Vec<u64> =
        events(&admin, "lease.granted").iter().map(|it| it["payload"]["fence"].as_u64().unwrap()).collect();
    let mut sorted = leases;
    sorted.sort_unstable();
    assert_eq!(granted, sorted, "each was told once, in their order");
    let lines: Vec<Line> = log(&lab).into_iter().filter(|line| line.hook != "health").collect();
    in_turn(&lines);
    let prepared: Vec<u64> = of(&lines, "prepare", "end");
    let never: Vec<&u64> = granted.iter().filter(|fence| !prepared.contains(fence)).collect();
    assert_eq!(never, [] as [&u64; 0], "each was prepared to the end");
    let begun = of(&lines, "prepare", "begin");
    assert!(begun.is_sorted_by(|a, b| a < b), "nothing is prepared twice: {begun:?}");
    let status = admin.get("/v1/status").expect(200).body;
    assert_eq!((&status["waiting"], &status["leases"]), (&json!(0), &json!(0)));
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
}

fn of(lines: &[Line], hook: &str, what: &str) -> Vec<u64> {
    let of = lines.iter().filter(|line| line.hook == hook && line.what == what);
    of.map(|line| line.fence.parse().unwrap()).collect()
}

/// Between two prepares there is a reset of the first one's lease, to its end, and of no other; no reset is of a lease that
/// is long over. A claim whose prepare had not begun when the node was killed is followed by a reset all the same.
#[track_caller]
fn in_turn(lines: &[Line]) {
    let (mut last, mut dirty) = (0, false);
    for line in lines {
        let fence: u64 = line.fence.parse().unwrap();
        let begins = fence > last;
        assert!(fence >= last && !(begins && dirty), "{line:?} is out of turn: {lines:#?}");
        assert!(
            begins == (line.hook == "prepare" && line.what == "begin") || line.hook == "reset",
            "{line:?}: {lines:#?}"
        );
        (last, dirty) = (fence, (line.hook.as_str(), line.what.as_str()) != ("reset", "end"));
    }
    assert!(!dirty, "the last is followed by a reset as well");
}
