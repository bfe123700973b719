//! Who may come in, and what they may do there.

use serde_json::json;

use super::{BOTH, acquire, fleet, hold, id, refused_as, request};
use crate::http::{Call, Door};
use crate::lab::Lab;
use crate::said::Said;

/// A principal of the gateway's: its name, its door.
fn principal(lab: &Lab, name: &str, role: &str) -> (String, Door) {
    let secret = lab.berth(&["token", "create", "--name", name, "--role", role]).ok().trim().to_owned();
    let door = Door::tcp(lab.port("gateway")).with_token(&secret);
    (secret, door)
}

/// Runs the command line as somebody on another machine.
fn from_afar(lab: &Lab, secret: &str, arguments: &[&str]) -> Said {
    let mut command = lab.command();
    command.args(arguments).env("BERTH_URL", format!("http://127.0.0.1:{}", lab.port("gateway")));
    if !secret.is_empty() {
        command.env("BERTH_TOKEN", secret);
    }
    lab.finish(command)
}

#[test]
fn without_a_valid_token_nobody_comes_in_over_the_network() {
    let lab = fleet();
    for node in BOTH {
        let door = Door::tcp(lab.port(node));
        let strangers = [
            door.clone(),
            door.with_token("bth_0000000000000000000000000000000000000000000"),
            door.with_token(""),
            door.with_authorization("Basic YWRtaW46YWRtaW4="),
        ];
        for stranger in &strangers {
            for told in [
                stranger.get("/v1/leases"),
                stranger.get("/v1/status"),
                stranger.delete("/v1/leases/mine"),
                acquire(stranger, "pixel-a", json!({})),
                stranger.post_text("/v1/lease-requests", "not even JSON"),
                stranger.get("/v1/tokens"),
                stranger.get("/v1/no-such-route"),
            ] {
                let told = told.refused("UNAUTHENTICATED", 401);
                assert_eq!(told.header("www-authenticate"), Some("Bearer"));
            }
        }
        let told = strangers[0].get("/v1/leases");
        assert!(told.message().contains("Authorization: Bearer"), "{}", told.body);
        // A node's health is no secret.
        door.get("/v1/healthz").expect(200);
        door.get("/v1/readyz").expect(200);
    }
    // The gateway's admin is nobody at a worker, and the other way round.
    let secret = std::fs::read_to_string(lab.state("gateway").join("admin.token")).unwrap();
    Door::tcp(lab.port("rack-1")).with_token(secret.trim()).get("/v1/leases").refused("UNAUTHENTICATED", 401);
    for (secret, words) in [("", "no token"), ("bth_wrong", "unknown or revoked")] {
        let said = from_afar(&lab, secret, &["lease", "list"]).failed(3);
        assert!(refused_as("UNAUTHENTICATED", &said).0.contains(words), "{said}");
    }
}

#[test]
fn an_agent_neither_sees_nor_changes_what_is_another_s() {
    let lab = fleet();
    let (_, ci) = principal(&lab, "ci", "agent");
    let (secret, other) = principal(&lab, "other", "agent");
    let lease = hold(&ci, "pixel-a", "job-1");
    assert_eq!((&lease["holderId"], &lease["ownerId"]), (&json!("ci/job-1"), &json!("ci")));
    let path = format!("/v1/leases/{}", id(&lease));
    for told in [other.get(&path), other.delete(&path), other.post_text(&format!("{path}/renew"), "")] {
        let told = told.refused("INSUFFICIENT_PERMISSIONS", 403);
        assert!(told.message().contains("only its owner or an admin"), "{}", told.body);
        assert!(!told.body.to_string().contains("job-1"), "{}", told.body);
    }
    assert_eq!(other.get("/v1/leases").expect(200).body, json!({ "leases": [] }));
    let brief = other.get("/v1/resources/pixel-a").expect(200).body["resource"]["leases"].take();
    assert_eq!(brief[0].get("holderId"), None, "{brief}");
    let made = request(&ci, json!({ "select": "os=13", "requester": "job-2" })).expect(201);
    let asked = made.header("location").unwrap();
    other.get(asked).refused("INSUFFICIENT_PERMISSIONS", 403);
    for command in ["show", "renew", "release"] {
        let said = from_afar(&lab, &secret, &["lease", command, id(&lease)]).failed(3);
        refused_as("INSUFFICIENT_PERMISSIONS", &said);
    }
    // Permissions compare principals: whoever holds the token may act for any of its requesters.
    ci.send(&Call::json(&format!("{path}/renew"), "").header("Berth-Requester", "job-3")).expect(200);
    lab.door("gateway").post_text(&format!("{path}/renew"), "").expect(200);
    ci.delete(&path).expect(200);
}

#[test]
fn a_viewer_sees_all_and_changes_nothing() {
    let lab = fleet();
    let (secret, viewer) = principal(&lab, "wall", "viewer");
    let lease = hold(&lab.door("gateway"), "pixel-a", "r1");
    let path = format!("/v1/leases/{}", id(&lease));
    for told in [
        acquire(&viewer, "pixel-b", json!({})),
        request(&viewer, json!({ "select": "platform" })),
        viewer.delete(&path),
        viewer.post_text(&format!("{path}/renew"), ""),
        viewer.post("/v1/tokens", &json!({ "name": "x", "role": "admin" })),
        viewer.get("/v1/tokens"),
    ] {
        told.refused("INSUFFICIENT_PERMISSIONS", 403);
    }
    assert_eq!(viewer.get(&path).expect(200).body["lease"]["holderId"], "admin/r1");
    assert_eq!(viewer.get("/v1/leases").expect(200).body["leases"][0]["id"], lease["id"]);
    let said = from_afar(&lab, &secret, &["lease", "acquire", "pixel-b"]).failed(3);
    assert!(refused_as("INSUFFICIENT_PERMISSIONS", &said).0.contains("agent"), "{said}");
}

#[test]
fn only_an_admin_has_to_do_with_tokens_and_a_revoked_one_is_nobody_s_from_then_on() {
    let lab = fleet();
    let (secret, agent) = principal(&lab, "ci", "agent");
    agent.get("/v1/tokens").refused("INSUFFICIENT_PERMISSIONS", 403);
    agent.post("/v1/tokens", &json!({ "name": "x", "role": "agent" })).refused("INSUFFICIENT_PERMISSIONS", 403);
    let admin = lab.door("gateway");
    let tokens = admin.get("/v1/tokens").expect(200).body["tokens"].take();
    let token = tokens.as_array().unwrap().iter().find(|token| token["name"] == "ci").unwrap()["id"].as_str().unwrap();
    assert!(!tokens.to_string().contains(&secret), "a secret is shown once");
    agent.delete(&format!("/v1/tokens/{token}")).refused("INSUFFICIENT_PERMISSIONS", 403);
    let lease = hold(&agent, "pixel-a", "job-1");
    admin.delete(&format!("/v1/tokens/{token}")).expect(200);
    agent.get("/v1/leases").refused("UNAUTHENTICATED", 401);
    // Its leases stay, for an admin to look after.
    assert_eq!(admin.get("/v1/leases").body["leases"][0]["id"], lease["id"]);
    let again = admin.post("/v1/tokens", &json!({ "name": "ci", "role": "agent" })).refused("BAD_REQUEST", 400);
    assert!(again.message().contains("name"), "{}", again.body);
    let unknown = admin.delete("/v1/tokens/tok_0198f3a0-0000-4000-8000-000000000000");
    unknown.refused("UNKNOWN_TOKEN", 404);
}
