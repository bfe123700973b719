use clap::CommandFactory;
use serde_json::{Value, json};

use super::super::args::Cli;
use super::node::{Node, Say};
use super::{Ran, parse};
use crate::client::fake;

const HOLD: &str = "hold_00000000-0000-4000-8000-000000000002";
const BOOKING: &str = "book_00000000-0000-4000-8000-000000000001";
const TOKEN: &str = "bht_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const SLOT: [&str; 8] =
    ["lease", "holds", "create", "bench", "--starts-at", "2026-08-28T10:00[Europe/Warsaw]", "--duration", "90m"];

fn hold(rest: &Value) -> Value {
    let mut hold = json!({
        "id": HOLD, "resourceId": "bench", "holderId": "ci/job-17", "startsAt": "2026-08-28T08:00:00.000000Z",
        "endsAt": "2026-08-28T09:30:00.000000Z", "expiresAt": "2026-08-27T12:10:00.000000Z", "status": "active",
    });
    hold.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    hold
}

fn booked() -> Value {
    json!({"booking": {"id": BOOKING, "resourceId": "bench", "startsAt": "2026-08-28T08:00:00.000000Z",
        "endsAt": "2026-08-28T09:30:00.000000Z", "status": "scheduled", "holderId": "ci/job-17"}})
}

fn help(line: &[&str]) -> String {
    let berth = Cli::command().term_width(100);
    berth.try_get_matches_from(["berth"].iter().chain(line).chain(&["--help"])).unwrap_err().to_string()
}

fn token_file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, text).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (directory, name)
}

#[test]
fn hold_help_shows_how_to_hold_and_how_to_confirm() {
    insta::assert_snapshot!(help(&["lease", "holds"]), @r"
    Hold a slot for a short while, and confirm or release it

    Usage: berth lease holds [OPTIONS] <COMMAND>

    Commands:
      create   Hold a slot for a short while, and print the token that confirms it
      list     List the holds of a resource
      show     Show one hold
      confirm  Turn a hold into a booking of its holder
      release  Give a hold back
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease holds create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m --ttl 5m
      berth lease holds confirm hold_… --token-file token --note 'order 4711'
      berth lease holds release hold_… --token-file - < token
    ");
    insta::assert_snapshot!(help(&["lease", "holds", "create"]), @r"
    Hold a slot for a short while, and print the token that confirms it

    Usage: berth lease holds create [OPTIONS] --starts-at <TIME> <--duration <DURATION>|--ends-at <TIME>> <RESOURCE>

    Arguments:
      <RESOURCE>  Its id, or WORKER/ID where two workers have the same

    Options:
          --starts-at <TIME>       When it starts: 2026-08-28T08:00:00Z, or a local time with its zone,
                                   '2026-08-28T10:00[Europe/Warsaw]'
          --duration <DURATION>    How long it is, such as 90m
          --ends-at <TIME>         When it ends, without that instant itself
          --ttl <DURATION>         How long the hold lasts, such as 5m
          --idempotency-key <KEY>  Names this attempt: under the same key, a retry gets the same hold
      -h, --help                   Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease holds create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
      berth lease holds create bench-1 --starts-at '2026-08-28T10:00[Europe/Warsaw]' --duration 2h \
          --json > hold.json

    The token is shown this once. Under the same key a second try gets the same hold with a new token.
    ");
    insta::assert_snapshot!(help(&["lease", "holds", "confirm"]), @r"
    Turn a hold into a booking of its holder

    Usage: berth lease holds confirm [OPTIONS] --token-file <FILE> <HOLD>

    Arguments:
      <HOLD>  Which hold

    Options:
          --token-file <FILE>  The file that has its token, or - for the standard input
          --note <TEXT>        Free text for the booking
      -h, --help               Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease holds confirm hold_… --token-file token --note 'order 4711'
      jq -r .token hold.json | berth lease holds confirm hold_… --token-file -
    ");
    insta::assert_snapshot!(help(&["holds"]), @r"
    Stop new holds, and have them made again

    Usage: berth holds [OPTIONS] <COMMAND>

    Commands:
      pause   Stop new holds
      resume  Have new holds made again; refused while something is wrong with those that are there
      help    Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth holds pause               no new holds; those that are there can be confirmed and released
      berth holds pause bench-1       on this resource only
      berth doctor && berth holds resume
    ");
}

#[tokio::test]
async fn a_hold_is_a_line_and_its_token_alone_on_the_next() {
    let answer = json!({"hold": hold(&json!({})), "token": TOKEN});
    let made = answer.clone();
    let node = Node::new(move |_, _| Say::Json(201, made.clone())).await;
    let line = [&SLOT[..], &["--ttl", "5m", "--idempotency-key", "k"]].concat();
    let ran = node.run(&line).await;
    assert_eq!(ran.exit, 0);
    insta::assert_snapshot!(ran.out, @r"
    held hold_00000000-0000-4000-8000-000000000002 bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z until 2026-08-27T12:10:00Z
    bht_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    ");
    insta::assert_snapshot!(ran.err, @"the token is not shown again; `berth lease holds confirm` and `release` take it from a file");
    assert!(node.asked()[0].starts_with("POST /v1/resources/bench/holds "));
    let sent = json!({"startsAt": "2026-08-28T08:00:00.000000Z", "durationMs": 5_400_000, "ttlMs": 300_000,
        "idempotencyKey": "k"});
    assert_eq!(node.body(0), sent);
    let ran = node.run(&[&SLOT[..], &["--json"]].concat()).await;
    assert_eq!((serde_json::from_str::<Value>(&ran.out).unwrap(), ran.err.as_str()), (answer, ""));
}

#[tokio::test]
async fn a_hold_is_confirmed_and_released_with_the_token_of_a_file() {
    let node = Node::new(|_, question| match question.starts_with("POST") {
        true => Say::Json(200, booked()),
        false => Say::Json(200, json!({"hold": hold(&json!({"status": "released"}))})),
    })
    .await;
    let (_directory, file) = token_file(&format!("{TOKEN}\n"));
    let line = ["lease", "holds", "confirm", HOLD, "--token-file", &file, "--note", "order 7"];
    let ran = node.run(&line).await;
    let out = format!("booked {BOOKING} bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z\n");
    assert_eq!(ran, Ran { exit: 0, out, err: String::new() });
    assert!(node.asked()[0].starts_with(&format!("POST /v1/holds/{HOLD}/confirm ")));
    assert_eq!(node.body(0), json!({"token": TOKEN, "note": "order 7"}));
    let ran = node.run(&[&line[..], &["--json"]].concat()).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), booked());

    let out = format!("released {HOLD} bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z\n");
    for (token, shown) in [(&["--token-file", &file][..], TOKEN), (&[], "")] {
        let ran = node.run(&[&["lease", "holds", "release", HOLD][..], token].concat()).await;
        assert_eq!(ran, Ran { exit: 0, out: out.clone(), err: String::new() });
        assert_eq!(node.asked().last().unwrap().trim(), format!("DELETE /v1/holds/{HOLD} {shown}").trim());
    }
}

#[tokio::test]
async fn a_file_without_a_token_is_wrong_use_and_nothing_is_asked() {
    let node = Node::new(|_, _| Say::Json(200, booked())).await;
    let (_directory, file) = token_file(&format!("token: {TOKEN}\n"));
    let ran = node.run(&["lease", "holds", "confirm", HOLD, "--token-file", &file]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("has no token of a hold") && !ran.err.contains(TOKEN), "{}", ran.err);
    let ran = node.run(&["lease", "holds", "release", HOLD, "--token-file", "no/such"]).await;
    assert_eq!(ran.exit, 2);
    assert!(ran.err.starts_with("error BAD_REQUEST: the token file no/such cannot be read: "), "{}", ran.err);
    assert_eq!(node.asked(), Vec::<String>::new());
    for bad in [
        &["confirm", HOLD][..],
        &["confirm", HOLD, "--token", TOKEN],
        &["release", HOLD, TOKEN],
        &["show", BOOKING],
        &["create", "bench", "--starts-at", "2026-08-28T08:00:00Z"],
        &["list"],
    ] {
        let line = [&["lease", "holds"][..], bad].concat();
        assert_eq!(parse(&line).map(|_| ()).unwrap_err().exit_code(), 2, "{bad:?}");
    }
}

#[tokio::test]
async fn holds_are_a_table_and_one_is_a_sheet() {
    let gone = hold(&json!({"status": "confirmed", "bookingId": BOOKING}));
    let (all, one) = (json!({"holds": [hold(&json!({})), gone.clone()]}), json!({ "hold": gone }));
    let node = Node::new(move |_, question| match question.ends_with("/holds") {
        true => Say::Json(200, all.clone()),
        false => Say::Json(200, one.clone()),
    })
    .await;
    insta::assert_snapshot!(node.run(&["lease", "holds", "list", "bench"]).await.out, @r"
    HOLD                                       RESOURCE  HOLDER     FROM                  TO                    STATUS     UNTIL                 BOOKING
    hold_00000000-0000-4000-8000-000000000002  bench     ci/job-17  2026-08-28T08:00:00Z  2026-08-28T09:30:00Z  active     2026-08-27T12:10:00Z
    hold_00000000-0000-4000-8000-000000000002  bench     ci/job-17  2026-08-28T08:00:00Z  2026-08-28T09:30:00Z  confirmed  2026-08-27T12:10:00Z  book_00000000-0000-4000-8000-000000000001
    ");
    insta::assert_snapshot!(node.run(&["lease", "holds", "show", HOLD]).await.out, @r"
    hold      hold_00000000-0000-4000-8000-000000000002
    resource  bench
    holder    ci/job-17
    from      2026-08-28T08:00:00Z
    to        2026-08-28T09:30:00Z
    status    confirmed
    until     2026-08-27T12:10:00Z
    booking   book_00000000-0000-4000-8000-000000000001
    ");
    let ran = node.run(&["lease", "holds", "show", HOLD, "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap()["hold"]["bookingId"], BOOKING);
    let mut nobodys = hold(&json!({}));
    nobodys.as_object_mut().unwrap().remove("holderId");
    let node = Node::new(move |_, _| Say::Json(200, json!({ "hold": nobodys }))).await;
    let ran = node.run(&["lease", "holds", "show", HOLD]).await;
    assert!(ran.exit == 0 && !ran.out.contains("holder"), "{}", ran.out);
    let none = Node::new(|_, _| Say::Json(200, json!({"holds": []}))).await;
    let ran = none.run(&["lease", "holds", "list", "bench"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "no holds\n".to_owned() });
}

#[tokio::test]
async fn a_refused_hold_ends_with_its_exit_code() {
    for (status, code, exit, hint) in [
        (409, "HOLD_CONFLICT", 13, ""),
        (
            503,
            "HOLDS_PAUSED",
            1,
            "hint: an admin hears why from the worker that has the resource: `berth --via LAB@WORKER doctor`\n",
        ),
        (410, "HOLD_EXPIRED", 12, ""),
        (404, "UNKNOWN_HOLD", 12, ""),
    ] {
        let node = Node::new(move |_, _| Say::Json(status, fake::error(code, "no", &json!({})))).await;
        let err = format!("error {code}: no\n{hint}");
        assert_eq!(node.run(&SLOT).await, Ran { exit, out: String::new(), err });
    }
    let ran = Node::new(|_, _| Say::Broken).await.run(&SLOT).await;
    assert_eq!(ran.exit, 1);
    let hint = "hint: see whether it was held with `berth lease holds list bench`\n";
    assert!(ran.err.ends_with(hint), "{}", ran.err);
}

#[tokio::test]
async fn new_holds_are_paused_and_made_again_everywhere_or_on_one_resource() {
    let node = Node::new(|_, question| Say::Json(200, json!({"paused": question.ends_with("pause")}))).await;
    for (line, out) in [
        (&["holds", "pause"][..], "new holds are paused\n"),
        (&["holds", "pause", "rack-1/bench"], "new holds are paused on rack-1/bench\n"),
        (&["holds", "resume"], "new holds are made again\n"),
        (&["holds", "resume", "bench"], "new holds are made again on bench\n"),
        (&["holds", "pause", "--json"], "{\n  \"paused\": true\n}\n"),
    ] {
        assert_eq!(node.run(line).await, Ran { exit: 0, out: out.to_owned(), err: String::new() });
    }
    let asked = [
        "POST /v1/holds/pause",
        "POST /v1/resources/rack-1%2Fbench/holds/pause",
        "POST /v1/holds/resume",
        "POST /v1/resources/bench/holds/resume",
        "POST /v1/holds/pause",
    ];
    assert_eq!(node.asked(), asked);
    let paused = Node::new(|_, _| Say::Json(200, json!({"paused": true}))).await;
    let ran = paused.run(&["holds", "resume", "bench"]).await;
    let err = "they are still paused: by the gateway or on the whole node; `berth doctor` says more\n".to_owned();
    assert_eq!(ran, Ran { exit: 0, out: "new holds are paused on bench\n".to_owned(), err });
    let ran = paused.run(&["holds", "resume", "bench", "--json"]).await;
    assert_eq!(ran.err, "", "a program reads it in the answer");
}

#[tokio::test]
async fn a_doctor_that_finds_nothing_says_ok_and_one_that_does_ends_with_1() {
    let found = |ok: bool, paused: bool, violations: Value| {
        let body = json!({"ok": ok, "holdsPaused": paused, "violations": violations});
        Node::new(move |_, _| Say::Json(200, body.clone()))
    };
    let sound = found(true, false, json!([])).await;
    assert_eq!(sound.run(&["doctor"]).await, Ran { exit: 0, out: "ok\n".to_owned(), err: String::new() });
    assert_eq!(sound.asked(), ["GET /v1/doctor"]);
    let ran = found(true, true, json!([])).await.run(&["doctor"]).await;
    let err = "new holds are paused; `berth holds resume` has them made again\n".to_owned();
    assert_eq!(ran, Ran { exit: 0, out: "ok\n".to_owned(), err });

    let words = "bench: book_1 and hold_2 overlap";
    let sick = found(false, true, json!([words, "oven: two exclusive leases"])).await;
    let ran = sick.run(&["doctor"]).await;
    assert_eq!((ran.exit, ran.out), (1, format!("{words}\noven: two exclusive leases\n")));
    insta::assert_snapshot!(ran.err, @"error INVARIANT_VIOLATED: 2 invariants are violated; see docs/runbook-holds.md for how to repair them and have new holds made again");
    let ran = sick.run(&["doctor", "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.exit, shape["ok"].as_bool(), shape["violations"][0].as_str()), (1, Some(false), Some(words)));
    assert!(
        ran.err.starts_with(r#"{"error":{"code":"INVARIANT_VIOLATED","message":"2 invariants are "#),
        "{}",
        ran.err
    );
}
