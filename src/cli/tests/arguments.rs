use clap::CommandFactory;
use serde_json::json;

use super::super::args::{Cli, Command};
use super::super::lease_args::LeaseCommand;
use super::parse;

#[test]
fn the_tree_of_commands_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn lease_help_shows_how_to_ask() {
    let berth = Cli::command().term_width(100);
    let help = berth.try_get_matches_from(["berth", "lease", "--help"]).unwrap_err().to_string();
    insta::assert_snapshot!(help, @r"
    Get a lease, and look after leases

    Usage: berth lease [OPTIONS] <--platform <P>|--model <M>|--os <V>|--select <SELECTOR>|--resource <RESOURCE>>
           berth lease [OPTIONS] <COMMAND>

    Commands:
      acquire       Lease one resource at once, be refused, or stand in its waiting room
      renew         Move a lease's deadline to now plus its width
      release       End a lease
      exec          Run a tool at the device of a lease, on the machine that owns it
      waiting-room  Show who waits for a resource
      leave         Leave the waiting room of a resource
      cancel        End a lease request that waits
      bookings      Book windows of a resource, and look after bookings
      holds         Hold a slot for a short while, and confirm or release it
      list          List the active leases
      show          Show one active lease
      help          Print this message or the help of the given subcommand(s)

    Options:
          --platform <P>           Any resource of this platform
          --model <M>              Any resource of this model
          --os <V>                 Any resource with this system version: 15, or '>=14'
          --select <SELECTOR>      Any resource whose labels match, such as 'platform=android,os>=14'
          --resource <RESOURCE>    This resource
          --ttl <DURATION>         How long the lease lasts without a renew, such as 15m
          --lease-id <ID>          The id that the lease is to have
          --note <TEXT>            Free text for the lease
          --shared                 Share the resource with others
          --allow-shorter          Rather a shorter lease than none, where a booking is in the way
          --priority <N>           Rank among those that wait, -1000 to 1000; higher goes first
                                   [default: 0]
          --timeout <DURATION>     Wait at most so long, such as 5m; without it for as long as it takes
          --no-wait                Be refused rather than wait
          --idempotency-key <KEY>  Names this attempt: under the same key, a retry gets the same lease
          --keep                   Stay, renew the lease, and release it on Ctrl-C
      -h, --help                   Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease --platform android --model 'Pixel 8' --os '>=14' --ttl 30m
      berth lease --select 'board=imx8,rack in (a,b)' --no-wait
      berth lease --resource pixel-8-a --lease-id ad-7f3a --note 'nightly run'
      berth lease --platform android --timeout 10m --priority 5
      berth lease --platform android --keep          until Ctrl-C
      berth lease renew ad-7f3a
      berth lease release ad-7f3a
    ");
}

#[test]
fn a_command_stands_after_two_dashes_with_options_of_its_own() {
    let line = ["exec", "--platform", "android", "--ttl", "2m", "--bind-pid", "7", "--", "adb", "--json", "-h", "--"];
    let Command::Exec(args) = parse(&line).unwrap().command else { panic!("no exec") };
    assert_eq!(args.command, ["adb", "--json", "-h", "--"]);
    assert_eq!(args.bind_pid.map(|pid| pid.to_string()).as_deref(), Some("7"));
    assert_eq!(serde_json::to_value(args.request.body().unwrap()).unwrap()["ttlMs"], 120_000);
    for bad in [
        &["exec", "--platform", "android"][..],
        &["exec", "--platform", "android", "--"],
        &["exec", "--platform", "android", "adb"],
        &["exec", "--", "adb"],
        &["exec", "--platform", "android", "--keep", "--", "adb"],
        &["exec", "--platform", "android", "--no-wait", "--timeout", "5m", "--", "adb"],
        &["exec", "--platform", "android", "--bind-pid", "0", "--", "adb"],
        &["exec", "--platform", "android", "--bind-pid", "-7", "--", "adb"],
        &["exec", "--platform", "android", "--bind-pid", "me", "--", "adb"],
    ] {
        assert_eq!(parse(bad).map(|_| ()).unwrap_err().exit_code(), 2, "{bad:?}");
    }
}

#[test]
fn a_lease_is_asked_for_by_labels_by_selector_or_by_name_and_not_by_two_of_them() {
    for good in [
        &["lease", "--platform", "android", "--os", ">=14"][..],
        &["lease", "--model", "Pixel 8"],
        &["lease", "--select", "board=imx8", "--no-wait", "--json"],
        &["--json", "lease", "--resource", "rack-1/pixel", "--shared", "--priority", "-5"],
        &["lease", "--json", "list"],
        &["lease", "acquire", "pixel", "--duration", "1h30m", "--priority", "2.5"],
        &["lease", "acquire", "pixel", "--poll", "--on-conflict", "join-waiting-room"],
        &["lease", "--platform", "android", "--timeout", "5m", "--keep"],
        &["lease", "waiting-room", "rack-1/pixel"],
        &["lease", "leave", "pixel"],
        &["lease", "cancel", "req_01900000-0000-7000-8000-000000000000"],
        &["resource", "drain", "pixel"],
        &["events", "--follow", "--since", "7", "--event", "lease.granted"],
    ] {
        assert!(parse(good).is_ok(), "{good:?}");
    }
    for bad in [
        &["lease"][..],
        &["lease", "--ttl", "5m"],
        &["lease", "--platform", ""],
        &["lease", "--platform", "android", "--select", "os"],
        &["lease", "--resource", "pixel", "--os", "14"],
        &["lease", "--resource", "pixel", "--select", "os"],
        &["lease", "--platform", "android", "list"],
        &["lease", "--no-wait", "acquire", "pixel"],
        &["lease", "--resource", "pixel", "--ttl", "300"],
        &["lease", "--resource", "pixel", "--priority", "1001"],
        &["lease", "--resource", "pixel", "--lease-id", "a.b"],
        &["lease", "renew", "mine", "--fence", "-1"],
        &["lease", "acquire", "pixel", "--poll", "--on-conflict", "fail"],
        &["lease", "acquire", "pixel", "--on-conflict", "wait"],
        &["lease", "acquire", "pixel", "--keep"],
        &["lease", "--platform", "android", "--timeout", "5m", "--no-wait"],
        &["lease", "--platform", "android", "--timeout", "31d"],
        &["lease", "cancel", "mine"],
        &["events", "--event", "lease.lost"],
        &["events", "--since", "-1"],
        &["token", "create", "--name", "ci", "--role", "root"],
        &["status", "--url", "http://x", "--via", "lab@w1"],
        &["wait"],
    ] {
        assert_eq!(parse(bad).map(|_| ()).unwrap_err().exit_code(), 2, "{bad:?}");
    }
}

#[test]
fn a_bad_selector_is_shown_with_a_caret_under_the_place() {
    let error = parse(&["resource", "list", "--select", "os>>1"]).map(|_| ()).unwrap_err().to_string();
    insta::assert_snapshot!(error, @r"
    error: invalid value 'os>>1' for '--select <SELECTOR>': expected a version such as 14 or 14.3
      os>>1
         ^

    For more information, try '--help'.
    ");
}

#[test]
fn what_the_arguments_say_is_what_is_sent() {
    let line = [
        "lease",
        "--platform",
        "android",
        "--ttl",
        "1h",
        "--lease-id",
        "mine",
        "--shared",
        "--note",
        "n",
        "--timeout",
        "5m",
    ];
    let Command::Lease(args) = parse(&line).unwrap().command else { panic!("no lease") };
    let body = serde_json::to_value(args.request.body().unwrap()).unwrap();
    let sent = json!({
        "select": "platform=android", "ttlMs": 3_600_000, "leaseId": "mine", "mode": "shared", "note": "n",
        "noWait": false, "timeoutMs": 300_000,
    });
    assert_eq!(body, sent);

    let acquire = |line: &[&str]| {
        let Command::Lease(args) = parse(line).unwrap().command else { panic!("no lease") };
        let Some(LeaseCommand::Acquire(args)) = args.command else { panic!("no acquire") };
        serde_json::to_value(args.body()).unwrap()
    };
    let line = ["lease", "acquire", "pixel", "--duration", "10m", "--priority", "-1.5", "--idempotency-key", "k"];
    assert_eq!(acquire(&line), json!({"ttlMs": 600_000, "priority": -1.5, "idempotencyKey": "k"}));
    assert_eq!(acquire(&["lease", "acquire", "pixel", "--poll"]), json!({"onConflict": "join-waiting-room"}));
    assert_eq!(acquire(&["lease", "acquire", "pixel", "--on-conflict", "fail"]), json!({"onConflict": "fail"}));
}
