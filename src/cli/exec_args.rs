//! The arguments of `berth exec`.

use std::ffi::OsString;

use clap::Args;
use rustix::process::Pid;

use super::lease_args::RequestArgs;

const HELP: &str = "\
Examples:
  berth exec --platform android -- adb shell getprop ro.build.version.sdk
  berth exec --select 'board=imx8,rack in (a,b)' --timeout 10m -- ./flash.sh image.bin
  berth exec --resource pixel-8-a --ttl 2m -- sh -c 'echo \"$BERTH_RESOURCE, fence $BERTH_FENCE\"'
  berth exec --platform android --bind-pid 4711 -- make test        ends with process 4711

The command finds what the device needs in its environment, and BERTH_LEASE, BERTH_RESOURCE,
BERTH_FENCE and BERTH_HOLDER. It has the streams of berth and gets the signals that berth is sent;
on a terminal it has the foreground. The lease is renewed until the command ends, and released
then. While berth is stopped, by Ctrl-Z for one, it renews nothing, and the lease ends at its
deadline.

Exit codes:
  the command's own, or 128 and the number of the signal that ended it
  14   the lease was lost: the command got SIGTERM, and SIGKILL 10 s later
  126  the command cannot be executed
  127  the command was not found
  143  the parent, or --bind-pid, is gone: the command was ended in the same way
  and those of `berth lease` when there is no lease";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) request: RequestArgs,
    /// End the command when this process is gone [default: the parent of berth]
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(super) bind_pid: Option<Pid>,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

fn pid(text: &str) -> Result<Pid, String> {
    let number = text.parse().ok().filter(|number: &i32| *number > 0);
    number.and_then(Pid::from_raw).ok_or_else(|| "is no number of a process".to_owned())
}
