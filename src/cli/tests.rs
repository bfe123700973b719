use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, delete, get, post};
use clap::{CommandFactory, Parser};
use serde_json::{Value, json};

use super::args::{Cli, Command, Global};
use super::connect::Connector;
use super::lease_args::LeaseCommand;
use super::output::Output;
use super::{ask, failure, lease};
use crate::client::fake;
use crate::model::Priority;
use crate::service::ask::RequestBody;

const REQUEST: &str = "req_01900000-0000-7000-8000-000000000000";

/// What a command left behind.
#[derive(Debug, PartialEq)]
struct Ran {
    exit: u8,
    out: String,
    err: String,
}

async fn run(routes: Router, line: &[&str]) -> Ran {
    run_at(&fake::url_of(routes).await, line).await
}

async fn run_at(url: &str, line: &[&str]) -> Ran {
    let cli = parse(line).unwrap();
    let global = Global { url: Some(url.to_owned()), ..cli.global };
    let connector = Connector::new(&global, &|_| None).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = ask(cli.command, &connector, &mut Output::to(global.json, &mut out, &mut err)).await;
    Ran { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn parse(line: &[&str]) -> Result<Cli, clap::Error> {
    let cli = Cli::try_parse_from(["berth"].iter().chain(line))?;
    cli.check()?;
    Ok(cli)
}

fn answers(status: u16, body: Value) -> impl Fn() -> std::future::Ready<axum::response::Response> + Clone {
    move || std::future::ready(fake::json(status, &body))
}

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
      acquire  Lease one resource at once, or be refused
      renew    Move a lease's deadline to now plus its width
      release  End a lease
      list     List the active leases
      show     Show one active lease
      help     Print this message or the help of the given subcommand(s)

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
          --priority <N>           Rank among those that wait, -1000 to 1000; higher goes first
                                   [default: 0]
          --no-wait                Be refused rather than wait
          --idempotency-key <KEY>  Names this attempt: under the same key, a retry gets the same lease
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
      berth lease renew ad-7f3a
      berth lease release ad-7f3a
    ");
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
    let line = ["lease", "--platform", "android", "--ttl", "1h", "--lease-id", "mine", "--shared", "--note", "n"];
    let Command::Lease(args) = parse(&line).unwrap().command else { panic!("no lease") };
    let body = serde_json::to_value(args.request.body().unwrap()).unwrap();
    let sent = json!({
        "select": "platform=android", "ttlMs": 3_600_000, "leaseId": "mine", "mode": "shared", "note": "n",
        "noWait": false, "priority": 0.0,
    });
    assert_eq!(body, sent);

    let line = ["lease", "acquire", "pixel", "--duration", "10m", "--priority", "-1.5"];
    let Command::Lease(args) = parse(&line).unwrap().command else { panic!("no lease") };
    let Some(LeaseCommand::Acquire { duration, terms, .. }) = args.command else { panic!("no acquire") };
    let body = terms.acquire(duration);
    assert_eq!(body.priority, Some(Priority::try_from(-1.5).unwrap()));
    assert_eq!(serde_json::to_value(&body).unwrap()["ttlMs"], 600_000);
}

#[tokio::test]
async fn a_granted_lease_is_one_line_on_stdout() {
    let granted = fake::request("granted", &json!({"lease": fake::lease("mine", "pixel-8-a")}));
    let routes = Router::new().route("/v1/lease-requests", post(answers(201, granted)));
    let ran = run(routes.clone(), &["lease", "--platform", "android"]).await;
    let line = "leased mine pixel-8-a until 2026-01-01T00:15:00Z\n".to_owned();
    assert_eq!(ran, Ran { exit: 0, out: line, err: String::new() });

    let ran = run(routes, &["lease", "--platform", "android", "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape["request"]["lease"]["expiresAt"], "2026-01-01T00:15:00.250000Z");
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""));
}

#[tokio::test]
async fn a_request_that_is_placed_later_is_followed_until_it_is_settled() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let poll = move || {
        let state = match count.fetch_add(1, Ordering::Relaxed) {
            0 => fake::request("waiting", &json!({})),
            _ => fake::request("granted", &json!({"lease": fake::lease("mine", "pixel-8-a")})),
        };
        std::future::ready(fake::json(200, &state))
    };
    let routes = Router::new()
        .route("/v1/lease-requests", post(answers(201, fake::request("waiting", &json!({})))))
        .route("/v1/lease-requests/{id}", get(poll));
    let ran = run(routes, &["lease", "--platform", "android"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, "leased mine pixel-8-a until 2026-01-01T00:15:00Z\n"));
    assert_eq!(ran.err, format!("lease request {REQUEST} is being placed …\n"));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_request_that_fails_later_is_printed_as_its_refusal() {
    let failed = json!({"error": {"code": "NO_CAPACITY", "message": "both are held", "details": {"matching": 2}}});
    let routes = Router::new()
        .route("/v1/lease-requests", post(answers(201, fake::request("waiting", &json!({})))))
        .route("/v1/lease-requests/{id}", get(answers(200, fake::request("failed", &failed))));
    let ran = run(routes, &["lease", "--platform", "android", "--json"]).await;
    let line = r#"{"error":{"code":"NO_CAPACITY","message":"both are held","details":{"matching":2}}}"#;
    assert_eq!(ran, Ran { exit: 11, out: String::new(), err: format!("{line}\n") });
}

#[tokio::test]
async fn a_request_that_is_never_settled_is_left_after_the_bound() {
    let waiting = fake::request("waiting", &json!({}));
    let routes = Router::new()
        .route("/v1/lease-requests", post(answers(201, waiting)))
        .route("/v1/lease-requests/{id}", get(std::future::pending::<()>));
    let client = fake::over_tcp(routes).await;
    let mut output = Output::to(false, std::io::sink(), std::io::sink());
    let error = lease::request(&RequestBody::default(), &client, Duration::from_millis(50), &mut output).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains(REQUEST), "{error}");
    assert_eq!(failure::report(&error, None, &mut output), 1);
}

#[tokio::test]
async fn a_refusal_ends_with_its_exit_code_and_a_hint() {
    let taken = fake::error("LEASE_ID_TAKEN", "lease ID ad-7f3a is already in use", &json!({"leaseId": "ad-7f3a"}));
    let routes = Router::new().route("/v1/lease-requests", post(answers(409, taken)));
    let ran = run(routes, &["lease", "--platform", "android", "--lease-id", "ad-7f3a"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (13, ""));
    insta::assert_snapshot!(ran.err, @r"
    error LEASE_ID_TAKEN: lease ID ad-7f3a is already in use
    hint: `berth lease show ad-7f3a` shows what is held, `berth lease release ad-7f3a` frees it
    ");
}

#[tokio::test]
async fn an_unknown_resource_is_answered_with_the_nearest_one() {
    let unknown = fake::error("UNKNOWN_RESOURCE", "no resource pixel-8a", &json!({}));
    let known = json!({"resources": [fake::resource("bench-1", "rack-2"), fake::resource("pixel-8-a", "rack-1")]});
    let routes = Router::new()
        .route("/v1/resources", get(answers(200, known)))
        .route("/v1/resources/{id}", get(answers(404, unknown.clone())))
        .route("/v1/resources/{id}/leases", post(answers(404, unknown)));
    for line in [&["lease", "acquire", "pixel-8a"][..], &["resource", "show", "pixel-8a"]] {
        let ran = run(routes.clone(), line).await;
        let err = "error UNKNOWN_RESOURCE: no resource pixel-8a\nhint: did you mean pixel-8-a?\n".to_owned();
        assert_eq!(ran, Ran { exit: 12, out: String::new(), err });
    }
}

#[tokio::test]
async fn a_node_that_is_away_ends_with_1_and_says_what_the_system_said() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = run_at(&url, &["status"]).await;
    assert_eq!(ran.exit, 1);
    assert!(
        ran.err.starts_with(&format!("error UNANSWERED: no connection to {url}: Connection refused")),
        "{}",
        ran.err
    );
    let ran = run_at(&url, &["wait", "--ready", "--timeout", "200ms", "--json"]).await;
    assert_eq!(ran.exit, 1);
    assert!(ran.err.starts_with(r#"{"error":{"code":"UNANSWERED","message":"not ready within"#), "{}", ran.err);
}

#[tokio::test]
async fn lists_are_tables_without_borders() {
    let mut long = fake::lease("rack-2.lse_0", "bench-1");
    long["note"] = json!("nightly run");
    let leases = json!({"leases": [fake::lease("mine", "pixel-8-a"), long]});
    let mut held = fake::resource("pixel-8-a", "rack-1");
    held["state"] = json!("leased");
    held["reachable"] = json!(false);
    held["leases"] = json!([{"id": "mine", "holderId": "ci/job-17", "mode": "exclusive",
        "expiresAt": "2026-01-01T00:15:00.000000Z"}]);
    let resources = json!({"resources": [fake::resource("bench-1", "rack-2"), held]});
    let workers = json!([
        {"name": "rack-1", "connection": "connected", "known": true, "lastSeenAt": "2026-01-01T00:00:01.000000Z",
            "version": "0.1.0", "protocol": "1", "resources": 7, "leases": 1},
        {"name": "rack-2", "connection": "disconnected", "known": false, "resources": 0, "leases": 0},
    ]);
    let node = json!({"name": "gateway", "role": "gateway", "version": "0.1.0",
        "startedAt": "2026-01-01T00:00:00.000000Z", "ready": true});
    let counts = json!({"total": 7, "available": 6, "leased": 1});
    let status = json!({"node": node, "resources": counts, "leases": 1, "waiting": 0, "workers": workers});
    let routes = Router::new()
        .route("/v1/leases", get(answers(200, leases)))
        .route("/v1/leases/{id}", get(answers(200, json!({"lease": fake::lease("mine", "pixel-8-a")}))))
        .route("/v1/resources", get(answers(200, resources)))
        .route("/v1/status", get(answers(200, status)));
    let url = fake::url_of(routes).await;
    insta::assert_snapshot!(run_at(&url, &["lease", "list"]).await.out, @r"
    LEASE         RESOURCE   WORKER  HOLDER     MODE       LEFT    UNTIL                 NOTE
    mine          pixel-8-a  rack-1  ci/job-17  exclusive  14m59s  2026-01-01T00:15:00Z
    rack-2.lse_0  bench-1    rack-1  ci/job-17  exclusive  14m59s  2026-01-01T00:15:00Z  nightly run
    ");
    insta::assert_snapshot!(run_at(&url, &["lease", "show", "mine"]).await.out, @r"
    lease        mine
    resource     pixel-8-a
    worker       rack-1
    holder       ci/job-17
    mode         exclusive
    granted      2026-01-01T00:00:00Z
    renewed      2026-01-01T00:00:00Z
    until        2026-01-01T00:15:00Z (in 14m59s)
    ttl          15m
    fence        1767225600000
    labels       model=Pixel 8,platform=android
    environment  ANDROID_SERIAL=R5
    ");
    insta::assert_snapshot!(run_at(&url, &["resource", "list"]).await.out, @r"
    RESOURCE   WORKER  STATE      LABELS                  LEASES
    bench-1    rack-2  available  os=15,platform=android
    pixel-8-a  rack-1  leased?    os=15,platform=android  mine (ci/job-17)
    ");
    insta::assert_snapshot!(run_at(&url, &["status"]).await.out, @r"
    node       gateway (gateway), ready
    version    0.1.0
    started    2026-01-01T00:00:00Z
    resources  7: 6 available, 1 leased
    leases     1
    waiting    0

    WORKER  CONNECTION    RESOURCES  LEASES  LAST SEEN             VERSION  PROTOCOL
    rack-1  connected     7          1       2026-01-01T00:00:01Z  0.1.0    1
    rack-2  disconnected  ?          ?
    ");
}

#[tokio::test]
async fn an_empty_list_leaves_stdout_empty() {
    let routes = Router::new().route("/v1/leases", get(answers(200, json!({"leases": []}))));
    let ran = run(routes, &["lease", "list"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "no leases\n".to_owned() });
}

#[tokio::test]
async fn renew_and_release_name_the_fence_and_say_what_happened() {
    let heard = |request: Request| async move {
        let said = format!("{} {}", request.method(), request.uri());
        let body = axum::body::to_bytes(request.into_body(), 1024).await.unwrap();
        let said = format!("{said} {}", String::from_utf8_lossy(&body));
        fake::json(404, &fake::error("UNKNOWN_LEASE", &said, &json!({})))
    };
    let url = fake::url_of(Router::new().fallback(any(heard))).await;
    let ran = run_at(&url, &["lease", "renew", "mine", "--ttl", "5m", "--fence", "7"]).await;
    assert_eq!(ran.err, "error UNKNOWN_LEASE: POST /v1/leases/mine/renew {\"ttlMs\":300000,\"fence\":7}\n");
    let ran = run_at(&url, &["lease", "release", "mine", "--fence", "7"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (12, "error UNKNOWN_LEASE: DELETE /v1/leases/mine?fence=7 \n"));

    let released = json!({"leaseId": "mine", "resourceId": "pixel", "message": "Lease mine released"});
    let routes = Router::new()
        .route("/v1/leases/{id}", delete(answers(200, released)))
        .route("/v1/leases/{id}/renew", post(answers(200, json!({"lease": fake::lease("mine", "pixel")}))));
    assert_eq!(run(routes.clone(), &["lease", "release", "mine"]).await.out, "Lease mine released\n");
    assert_eq!(run(routes, &["lease", "renew", "mine"]).await.out, "renewed mine pixel until 2026-01-01T00:15:00Z\n");
}

#[tokio::test]
async fn a_new_tokens_secret_alone_is_on_stdout() {
    let token = json!({"id": "tok_00000000-0000-4000-8000-000000000000", "name": "ci", "role": "agent",
        "createdAt": "2026-01-01T00:00:00.000000Z"});
    let routes = Router::new().route("/v1/tokens", post(answers(201, json!({"token": token, "secret": fake::SECRET}))));
    let ran = run(routes, &["token", "create", "--name", "ci", "--role", "agent"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, format!("{}\n", fake::SECRET).as_str()));
    assert!(ran.err.contains("of ci (agent)") && !ran.err.contains(fake::SECRET), "{}", ran.err);
}

#[tokio::test]
async fn waiting_for_a_node_ends_when_it_is_ready() {
    let looks = Arc::new(AtomicUsize::new(0));
    let look = move || {
        let ready = looks.fetch_add(1, Ordering::Relaxed) > 0;
        let body = json!({"ready": ready, "reasons": if ready { json!([]) } else { json!(["rebuilding"]) }});
        std::future::ready(fake::json(if ready { 200 } else { 503 }, &body))
    };
    let routes = Router::new().route("/v1/readyz", get(look));
    let ran = run(routes, &["wait", "--ready"]).await;
    assert_eq!(ran, Ran { exit: 0, out: "ready\n".to_owned(), err: String::new() });
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_a_success() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let leases = json!({"leases": [fake::lease("mine", "pixel")]});
    let url = fake::url_of(Router::new().route("/v1/leases", get(answers(200, leases)))).await;
    let connector = Connector::new(&Global { url: Some(url), ..Global::default() }, &|_| None).unwrap();
    let command = parse(&["lease", "list"]).unwrap().command;
    assert_eq!(ask(command, &connector, &mut Output::to(false, Closed, std::io::sink())).await, 0);
}
