//! Many commands at once.

use super::leases;
use crate::lab::Lab;

const BENCHES: &str = r#"
[lab]
name = "test"

[[worker]]
name = "rack-1"
api = "127.0.0.1:<rack-1>"

[[worker.resource]]
id = "bench-1"
labels = { platform = "linux" }

[[worker.resource]]
id = "bench-2"
labels = { platform = "linux" }

[[worker.resource]]
id = "bench-3"
labels = { platform = "linux" }
"#;

#[test]
fn many_commands_run_one_on_a_device_at_a_time_and_leave_nothing() {
    let lab = Lab::joined(BENCHES, "rack-1");
    // Two on one device would meet in its directory.
    let script = "mkdir in-$BERTH_RESOURCE || exit 9; sleep 0.05; rmdir in-$BERTH_RESOURCE; exit $1";
    std::thread::scope(|scope| {
        for number in 0..24 {
            let lab = &lab;
            scope.spawn(move || {
                let (name, exit) = (format!("job-{number}"), number % 3);
                let mut command = lab.command();
                command.args(["--requester", &name, "exec", "--platform", "linux", "--"]);
                command.args(["sh", "-c", script, "sh", &exit.to_string()]);
                let said = lab.finish(command);
                assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{said:?}");
            });
        }
    });
    assert_eq!(leases(&lab.door("rack-1")), [""; 0]);
}
