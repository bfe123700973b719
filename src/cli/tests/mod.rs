mod arguments;
mod bookings;
mod config;
mod documents;
mod events;
mod holds;
mod keep;
mod node;
mod tables;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, delete, get, post};
use clap::Parser;
use serde_json::{Value, json};

use super::args::{Cli, Global};
use super::ask;
use super::connect::Connector;
use super::interrupt::Interrupt;
use super::output::Output;
use super::patience::Pace;
use crate::client::fake;

const REQUEST: &str = "req_01900000-0000-7000-8000-000000000000";

/// A command that takes longer is stuck.
const BOUND: Duration = Duration::from_secs(20);
/// Short times, so that a test takes none.
const PACE: Pace = Pace {
    poll: Duration::from_secs(1),
    ask: Duration::from_millis(10),
    pause: Duration::from_millis(10),
    silence_max: Duration::from_millis(300),
    give_up: Duration::from_millis(500),
};

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
    run_until(url, line, Interrupt::when(std::future::pending())).await
}

/// Runs a command that a signal may end. Whatever it waits for, it does not wait long.
async fn run_until(url: &str, line: &[&str], interrupt: Interrupt) -> Ran {
    let cli = parse(line).unwrap();
    let global = Global { url: Some(url.to_owned()), ..cli.global };
    let connector = Connector::new(&global, &|_| None).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::to(global.json, &mut out, &mut err);
    let ran = ask(cli.command, &connector, &mut output, interrupt, PACE);
    let exit = tokio::time::timeout(BOUND, ran).await.expect("the command ends");
    drop(output);
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

    let released = json!({"leaseId": "mine", "resourceId": "pixel", "message": "Lease mine released",
        "admittedWaiter": "ci/job-2"});
    let notice = json!({"at": "2026-01-01T00:00:00.000000Z", "event": "device_unhealthy", "message": "it fell"});
    let renewed = json!({"lease": fake::lease("mine", "pixel"), "notices": [notice]});
    let routes = Router::new()
        .route("/v1/leases/{id}", delete(answers(200, released)))
        .route("/v1/leases/{id}/renew", post(answers(200, renewed)));
    let ran = run(routes.clone(), &["lease", "release", "mine"]).await;
    let (out, err) = ("Lease mine released\n".to_owned(), "ci/job-2 is next for pixel\n".to_owned());
    assert_eq!(ran, Ran { exit: 0, out, err });
    let ran = run(routes, &["lease", "renew", "mine"]).await;
    let out = "renewed mine pixel until 2026-01-01T00:15:00Z\n".to_owned();
    assert_eq!(ran, Ran { exit: 0, out, err: "notice: 2026-01-01T00:00:00Z it fell\n".to_owned() });
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
    let mut output = Output::to(false, Closed, std::io::sink());
    let interrupt = Interrupt::when(std::future::pending());
    assert_eq!(ask(command, &connector, &mut output, interrupt, PACE).await, 0);
}
