use clap::CommandFactory;
use serde_json::{Value, json};

use super::super::args::Cli;
use super::node::{Node, Say};
use super::{Ran, parse};
use crate::client::fake;

const BOOKING: &str = "rack-1.book_00000000-0000-4000-8000-000000000001";
const SERIES: &str = "series_00000000-0000-4000-8000-000000000003";
const CREATE: [&str; 4] = ["lease", "bookings", "create", "bench"];
const AT: [&str; 2] = ["--starts-at", "2026-08-28T10:00[Europe/Warsaw]"];

fn booking(number: u32, rest: &Value) -> Value {
    let mut booking = json!({
        "id": format!("rack-1.book_00000000-0000-4000-8000-00000000000{number}"), "resourceId": "bench",
        "startsAt": "2026-08-28T08:00:00.000000Z", "endsAt": "2026-08-28T09:30:00.000000Z", "status": "scheduled",
    });
    booking.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    booking
}

fn one(status: u16, rest: &Value) -> Say {
    Say::Json(status, json!({ "booking": booking(1, rest) }))
}

fn help(line: &[&str]) -> String {
    let berth = Cli::command().term_width(100);
    berth.try_get_matches_from(["berth"].iter().chain(line).chain(&["--help"])).unwrap_err().to_string()
}

#[test]
fn booking_help_shows_how_to_book() {
    insta::assert_snapshot!(help(&["lease", "bookings"]), @r"
    Book windows of a resource, and look after bookings

    Usage: berth lease bookings [OPTIONS] <COMMAND>

    Commands:
      create      Book a window of a resource, or one that comes again
      list        List bookings, in the order of their windows
      show        Show one booking
      cancel      Give a booking up
      reschedule  Give a booking another window; where that is taken it keeps its own
      help        Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease bookings create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
      berth lease bookings list bench-1 --from 2026-08-28T00:00:00Z
      berth lease bookings reschedule bench-1 --booking book_… --starts-at 2026-08-28T12:00:00Z
      berth lease bookings cancel bench-1 --booking book_…

    A local time has its zone in brackets, '2026-08-28T10:00[Europe/Warsaw]'. One that a change to
    summer
    time skips is moved to the end of the skipped hour; of one that comes twice the first is meant.
    ");
    insta::assert_snapshot!(help(&["lease", "bookings", "create"]), @r"
    Book a window of a resource, or one that comes again

    Usage: berth lease bookings create [OPTIONS] --starts-at <TIME> <--duration <DURATION>|--ends-at <TIME>> <RESOURCE>

    Arguments:
      <RESOURCE>  Its id, or WORKER/ID where two workers have the same

    Options:
          --starts-at <TIME>     When it starts: 2026-08-28T08:00:00Z, or a local time with its zone,
                                 '2026-08-28T10:00[Europe/Warsaw]'
          --duration <DURATION>  How long it is, such as 90m
          --ends-at <TIME>       When it ends, without that instant itself
          --note <TEXT>          Free text for the booking
          --repeat <HOW>         How often it comes again [possible values: daily, weekly]
          --until <DATE>         The last day on which one may start, such as 2026-12-18
          --tz <ZONE>            Whose clock the repetitions follow, such as Europe/Warsaw [default: the
                                 zone of --starts-at]
      -h, --help                 Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease bookings create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
      berth lease bookings create bench-1 --starts-at '2026-08-28T10:00[Europe/Warsaw]' --duration 90m \
          --repeat weekly --until 2026-12-18 --note 'release tests'

    A repeated window keeps its local time when the clocks change. All of it is booked or nothing.
    ");
    insta::assert_snapshot!(help(&["lease", "bookings", "reschedule"]), @r"
    Give a booking another window; where that is taken it keeps its own

    Usage: berth lease bookings reschedule [OPTIONS] --booking <ID> <--starts-at <TIME>|--duration <DURATION>|--ends-at <TIME>> <RESOURCE>

    Arguments:
      <RESOURCE>  Its resource, or WORKER/ID where two workers have the same

    Options:
          --booking <ID>         Which booking
          --starts-at <TIME>     Another start; its length stays unless another is named
          --duration <DURATION>  Another length, such as 90m
          --ends-at <TIME>       Another end, without that instant itself
      -h, --help                 Print help

    Global options:
          --json              Print the answer as JSON, and an error as one line of JSON
          --url <URL>         Ask the node at this URL [env: BERTH_URL]
          --via <LAB@NODE>    Ask this node of this machine [env: BERTH_NODE]
          --requester <NAME>  Act for this sub-requester [env: BERTH_REQUESTER]

    Examples:
      berth lease bookings reschedule bench-1 --booking book_… --starts-at 2026-08-28T12:00:00Z
      berth lease bookings reschedule bench-1 --booking book_… --duration 2h
    ");
}

#[tokio::test]
async fn a_booking_is_one_line_on_stdout_and_its_times_are_utc() {
    let node = Node::new(|_, _| one(201, &json!({"holderId": "ci/job-17", "note": "nightly"}))).await;
    let line = [&CREATE[..], &AT, &["--duration", "90m", "--note", "nightly"]].concat();
    let ran = node.run(&line).await;
    let out = format!("booked {BOOKING} bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z\n");
    assert_eq!(ran, Ran { exit: 0, out, err: String::new() });
    assert!(node.asked()[0].starts_with("POST /v1/resources/bench/bookings "));
    let sent = json!({"startsAt": "2026-08-28T08:00:00.000000Z", "durationMs": 5_400_000, "note": "nightly"});
    assert_eq!(node.body(0), sent);

    let ran = node.run(&[&line[..], &["--json"]].concat()).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape, json!({"booking": booking(1, &json!({"holderId": "ci/job-17", "note": "nightly"}))}));

    let line = [&CREATE[..], &AT, &["--ends-at", "2026-08-28T12:00:00+02:00"]].concat();
    node.run(&line).await;
    let sent = json!({"startsAt": "2026-08-28T08:00:00.000000Z", "endsAt": "2026-08-28T10:00:00.000000Z"});
    assert_eq!(node.body(2), sent);
}

#[tokio::test]
async fn a_booking_that_comes_again_is_a_line_for_each_and_follows_a_clock() {
    let made = json!({"seriesId": SERIES, "bookings": [
        booking(1, &json!({"seriesId": SERIES})),
        booking(2, &json!({"seriesId": SERIES, "startsAt": "2026-09-04T08:00:00.000000Z",
            "endsAt": "2026-09-04T09:30:00.000000Z"})),
    ]});
    let answer = made.clone();
    let node = Node::new(move |_, _| Say::Json(201, answer.clone())).await;
    let line = [&CREATE[..], &AT, &["--duration", "90m", "--repeat", "weekly", "--until", "2026-09-04"]].concat();
    let ran = node.run(&line).await;
    assert_eq!(ran.exit, 0);
    insta::assert_snapshot!(ran.out, @r"
    booked rack-1.book_00000000-0000-4000-8000-000000000001 bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z
    booked rack-1.book_00000000-0000-4000-8000-000000000002 bench 2026-09-04T08:00:00Z to 2026-09-04T09:30:00Z
    ");
    assert_eq!(ran.err, format!("{SERIES} of 2 bookings\n"));
    let repeat = json!({"every": "week", "until": "2026-09-04", "tz": "Europe/Warsaw"});
    assert_eq!(node.body(0)["repeat"], repeat);

    let ran = node.run(&[&line[..], &["--tz", "Europe/London", "--json"]].concat()).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), made);
    assert_eq!((node.body(1)["repeat"]["tz"].as_str(), ran.err.as_str()), (Some("Europe/London"), ""));
    let line =
        [&CREATE[..], &["--starts-at", "2026-08-28T08:00:00Z", "--duration", "1h", "--repeat", "daily"]].concat();
    node.run(&[&line[..], &["--until", "2026-09-04", "--tz", "UTC"]].concat()).await;
    assert_eq!(node.body(2)["repeat"], json!({"every": "day", "until": "2026-09-04", "tz": "UTC"}));
    let error = parse(&[&line[..], &["--until", "2026-09-04"]].concat()).map(|_| ()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    insta::assert_snapshot!(error.to_string(), @r"
    error: '--repeat' needs to know whose clock the time of day follows; add '--tz ZONE', or name the zone in '--starts-at', as in '2026-08-28T10:00[Europe/Warsaw]'

    Usage: berth [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[tokio::test]
async fn bookings_are_a_table_over_all_pages_and_those_of_others_say_only_when() {
    let pages = [
        json!({"bookings": [booking(1, &json!({"holderId": "ci/job-17", "note": "nightly", "status": "fulfilled",
            "leaseId": "rack-1.lse_1"}))], "next": format!("7-{BOOKING}")}),
        json!({"bookings": [booking(2, &json!({"startsAt": "2026-09-04T08:00:00.000000Z",
            "endsAt": "2026-09-04T09:30:00.000000Z"}))]}),
    ];
    let node = Node::new(move |number, _| Say::Json(200, pages[number % 2].clone())).await;
    let from = "2026-08-28T00:00[Europe/Warsaw]";
    let line = ["lease", "bookings", "list", "rack-1/bench", "--from", from, "--status", "scheduled", "--mine"];
    let ran = node.run(&line).await;
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!(ran.out, @r"
    BOOKING                                           RESOURCE  FROM                  TO                    STATUS     HOLDER     LEASE         NOTE
    rack-1.book_00000000-0000-4000-8000-000000000001  bench     2026-08-28T08:00:00Z  2026-08-28T09:30:00Z  fulfilled  ci/job-17  rack-1.lse_1  nightly
    rack-1.book_00000000-0000-4000-8000-000000000002  bench     2026-09-04T08:00:00Z  2026-09-04T09:30:00Z  scheduled
    ");
    insta::assert_snapshot!(node.asked().join("\n"), @r"
    GET /v1/resources/rack-1%2Fbench/bookings?from=2026-08-27T22%3A00%3A00.000000Z&status=scheduled&mine=true
    GET /v1/resources/rack-1%2Fbench/bookings?from=2026-08-27T22%3A00%3A00.000000Z&status=scheduled&mine=true&after=7-rack-1.book_00000000-0000-4000-8000-000000000001
    ");

    let ran = node.run(&["lease", "bookings", "list", "--all", "--to", "2026-09-01T00:00:00Z", "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape["bookings"].as_array().unwrap().len(), 2);
    assert_eq!(shape.get("next"), None, "it is the whole list");
    assert_eq!(node.asked()[2], "GET /v1/bookings?to=2026-09-01T00%3A00%3A00.000000Z");

    let none = Node::new(|_, _| Say::Json(200, json!({"bookings": []}))).await;
    let ran = none.run(&["lease", "bookings", "list", "--all"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "no bookings\n".to_owned() });
    // A page that leads to itself is not read for ever.
    let round =
        Node::new(|_, _| Say::Json(200, json!({"bookings": [booking(1, &json!({}))], "next": format!("7-{BOOKING}")})))
            .await;
    assert_eq!(round.run(&["lease", "bookings", "list", "--all"]).await.exit, 0);
    assert_eq!(round.asked().len(), 2);
    // Neither is one of two that lead to each other.
    let page =
        |number: usize| json!({"bookings": [booking(1, &json!({}))], "next": format!("{}-{BOOKING}", 7 - number % 2)});
    let round = Node::new(move |number, _| Say::Json(200, page(number))).await;
    assert_eq!(round.run(&["lease", "bookings", "list", "--all"]).await.exit, 0);
    assert_eq!(round.asked().len(), 2);
}

#[tokio::test]
async fn a_list_says_whose_bookings_it_does_not_have() {
    let pages = [
        json!({"bookings": [booking(1, &json!({}))], "next": format!("7-{BOOKING}"), "unreachable": ["rack-3"]}),
        json!({"bookings": [booking(2, &json!({}))], "unreachable": ["rack-2", "rack-3"]}),
    ];
    let node = Node::new(move |number, _| Say::Json(200, pages[number % 2].clone())).await;
    let ran = node.run(&["lease", "bookings", "list", "--all"]).await;
    assert_eq!((ran.exit, ran.out.lines().count()), (0, 3));
    insta::assert_snapshot!(ran.err, @r"
    not shown: the bookings of rack-2, which is not connected
    not shown: the bookings of rack-3, which is not connected
    ");
    let ran = node.run(&["lease", "bookings", "list", "--all", "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&shape["unreachable"], ran.err.as_str()), (&json!(["rack-2", "rack-3"]), ""));
}

#[tokio::test]
async fn a_booking_is_shown_as_a_sheet() {
    let facts = json!({"holderId": "ci/job-17", "note": "nightly", "seriesId": SERIES});
    let node = Node::new(move |_, _| one(200, &facts)).await;
    let ran = node.run(&["lease", "bookings", "show", BOOKING]).await;
    insta::assert_snapshot!(ran.out, @r"
    booking   rack-1.book_00000000-0000-4000-8000-000000000001
    resource  bench
    from      2026-08-28T08:00:00Z
    to        2026-08-28T09:30:00Z
    status    scheduled
    holder    ci/job-17
    series    series_00000000-0000-4000-8000-000000000003
    note      nightly
    ");
    assert_eq!(node.asked(), [format!("GET /v1/bookings/{BOOKING}")]);
}

#[tokio::test]
async fn a_booking_is_cancelled_alone_or_with_those_that_follow() {
    let node = Node::new(|_, question| match question.starts_with("GET") {
        true => one(200, &json!({})),
        false => {
            let gone = json!({"status": "cancelled"});
            let mut answer = json!({"booking": booking(1, &gone)});
            if question.ends_with("following=true") {
                answer["following"] = json!([booking(2, &gone)]);
            }
            Say::Json(200, answer)
        }
    })
    .await;
    let line = ["lease", "bookings", "cancel", "bench", "--booking", BOOKING];
    let ran = node.run(&line).await;
    let out = format!("cancelled {BOOKING} bench 2026-08-28T08:00:00Z to 2026-08-28T09:30:00Z\n");
    assert_eq!(ran, Ran { exit: 0, out: out.clone(), err: String::new() });
    assert_eq!(node.asked()[1], format!("DELETE /v1/bookings/{BOOKING}"));
    let ran = node.run(&[&line[..], &["--following"]].concat()).await;
    assert_eq!(ran.out, format!("{out}{}", out.replace("0001", "0002")));
    assert_eq!(node.asked()[3], format!("DELETE /v1/bookings/{BOOKING}?following=true"));
    let ran = node.run(&[&line[..], &["--json"]].concat()).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape, json!({"booking": booking(1, &json!({"status": "cancelled"}))}));
}

#[tokio::test]
async fn a_booking_of_another_resource_is_not_touched() {
    let node = Node::new(|_, _| one(200, &json!({}))).await;
    for (resource, verb) in [("oven", &["cancel"][..]), ("rack-2/bench", &["reschedule", "--duration", "1h"])] {
        let line = [&["lease", "bookings"][..], verb, &[resource, "--booking", BOOKING]].concat();
        let ran = node.run(&line).await;
        assert_eq!((ran.exit, ran.out.as_str()), (12, ""));
        let why = format!("error UNKNOWN_BOOKING: booking {BOOKING} is not on {resource} but on bench\n");
        assert_eq!(ran.err, why);
    }
    assert!(node.asked().iter().all(|asked| asked.starts_with("GET")), "{:?}", node.asked());
    let ran = node.run(&["lease", "bookings", "cancel", "rack-1/bench", "--booking", BOOKING]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
}

#[tokio::test]
async fn a_booking_gets_another_window() {
    let node = Node::new(|_, _| one(200, &json!({"startsAt": "2026-08-28T07:00:00.000000Z"}))).await;
    let line = ["lease", "bookings", "reschedule", "bench", "--booking", BOOKING];
    let ran = node.run(&[&line[..], &["--starts-at", "2026-08-28T09:00[Europe/Warsaw]"]].concat()).await;
    let out = format!("rescheduled {BOOKING} bench 2026-08-28T07:00:00Z to 2026-08-28T09:30:00Z\n");
    assert_eq!(ran, Ran { exit: 0, out, err: String::new() });
    assert_eq!(node.body(1), json!({"startsAt": "2026-08-28T07:00:00.000000Z"}));
    node.run(&[&line[..], &["--duration", "2h"]].concat()).await;
    assert_eq!(node.body(3), json!({"durationMs": 7_200_000}));
    node.run(&[&line[..], &["--ends-at", "2026-08-28T10:00:00Z"]].concat()).await;
    assert_eq!(node.body(5), json!({"endsAt": "2026-08-28T10:00:00.000000Z"}));
}

#[tokio::test]
async fn a_refused_booking_ends_with_its_exit_code_and_a_hint() {
    let refused = |status: u16, code: &'static str, details: Value| {
        Node::new(move |_, _| Say::Json(status, fake::error(code, "no", &details)))
    };
    let line = [&CREATE[..], &AT, &["--duration", "90m"]].concat();
    let ran = refused(409, "BOOKING_CONFLICT", json!({"bookingId": BOOKING})).await.run(&line).await;
    let hint = "hint: `berth lease bookings list bench` shows what is booked\n";
    let err = format!("error BOOKING_CONFLICT: no\n{hint}");
    assert_eq!(ran, Ran { exit: 13, out: String::new(), err });
    let ran = refused(409, "SLOT_HELD", json!({})).await.run(&line).await;
    assert_eq!((ran.exit, ran.err), (13, format!("error SLOT_HELD: no\n{hint}")));
    let ran = refused(429, "RATE_LIMITED", json!({})).await.run(&line).await;
    assert_eq!((ran.exit, ran.err.as_str()), (11, "error RATE_LIMITED: no\n"));
    let ran = refused(403, "INSUFFICIENT_PERMISSIONS", json!({})).await;
    assert_eq!(ran.run(&["lease", "bookings", "cancel", "bench", "--booking", BOOKING]).await.exit, 3);
    let broken = Node::new(|_, _| Say::Broken).await.run(&line).await;
    assert_eq!(broken.exit, 1);
    let hint = "hint: see whether it was booked with `berth lease bookings list bench --mine`\n";
    assert!(broken.err.ends_with(hint), "{}", broken.err);

    let booked = refused(409, "RESOURCE_BOOKED", json!({"availableForMs": 1_500_000})).await;
    let ran = booked.run(&["lease", "acquire", "bench", "--duration", "1h"]).await;
    assert_eq!(ran.exit, 11);
    let hint = "hint: it is free for 25m; ask for no more, or add --allow-shorter and take what there is\n";
    assert!(ran.err.ends_with(hint), "{}", ran.err);
}

#[test]
fn a_window_is_named_by_its_start_and_one_of_length_and_end() {
    let create = |rest: &[&str]| parse(&[&CREATE[..], rest].concat()).map(|_| ());
    let at = AT;
    for bad in [
        &at[..],
        &["--duration", "1h"],
        &[at[0], at[1], "--duration", "1h", "--ends-at", "2026-08-28T09:00:00Z"],
        &[at[0], "2026-08-28T10:00", "--duration", "1h"],
        &[at[0], "tomorrow", "--duration", "1h"],
        &[at[0], "2026-08-28T10:00[Mars/Olympus]", "--duration", "1h"],
        &[at[0], at[1], "--duration", "90"],
        &[at[0], at[1], "--duration", "1h", "--repeat", "weekly"],
        &[at[0], at[1], "--duration", "1h", "--until", "2026-09-30"],
        &[at[0], at[1], "--duration", "1h", "--tz", "Europe/Warsaw"],
        &[at[0], at[1], "--duration", "1h", "--repeat", "weekly", "--until", "2026-09-30T00:00"],
        &[at[0], at[1], "--duration", "1h", "--repeat", "yearly", "--until", "2026-09-30"],
        &[at[0], at[1], "--duration", "1h", "--repeat", "daily", "--until", "2026-09-30", "--tz", "Mars/Olympus"],
    ] {
        assert_eq!(create(bad).unwrap_err().exit_code(), 2, "{bad:?}");
    }
    for bad in [
        &["bookings"][..],
        &["bookings", "list"],
        &["bookings", "list", "bench", "--all"],
        &["bookings", "list", "--all", "--status", "open"],
        &["bookings", "cancel", "bench"],
        &["bookings", "cancel", "bench", "--booking", "book_1"],
        &["bookings", "reschedule", "bench", "--booking", BOOKING],
        &["bookings", "reschedule", "bench", "--booking", BOOKING, "--duration", "1h", "--ends-at", at[1]],
        &["--ttl", "5m", "bookings", "list", "--all"],
    ] {
        let line = [&["lease"][..], bad].concat();
        assert_eq!(parse(&line).map(|_| ()).unwrap_err().exit_code(), 2, "{bad:?}");
    }
    let error = create(&[at[0], "2026-08-28T10:00", "--duration", "1h"]).unwrap_err().to_string();
    insta::assert_snapshot!(error, @r#"
    error: invalid value '2026-08-28T10:00' for '--starts-at <TIME>': "2026-08-28T10:00" is no instant; write 2026-08-28T08:00:00Z, with any offset, or 2026-08-28T10:00[Europe/Warsaw]

    For more information, try '--help'.
    "#);
}
