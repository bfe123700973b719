//! BAD_REQUEST: every bound of SPEC §1 that a body, a header, a path or an argument can break.

use serde_json::json;

use super::{BOTH, acquire, fleet};
use crate::http::{Call, Door};

/// Bodies that both doors refuse, and the field that each names.
fn wrong_terms() -> Vec<(String, &'static str)> {
    let long_note = json!({ "note": "x".repeat(513) }).to_string();
    let long_name = json!({ "requester": "x".repeat(65) }).to_string();
    let long_key = json!({ "idempotencyKey": "x".repeat(201) }).to_string();
    let table = [
        (r#"{"ttlMs":0}"#, "ttlMs"),
        (r#"{"ttlMs":-1}"#, "ttlMs"),
        (r#"{"ttlMs":1.5}"#, "ttlMs"),
        (r#"{"ttlMs":"15m"}"#, "ttlMs"),
        (r#"{"ttlMs":14400001}"#, "ttlMs"),
        (r#"{"ttlMs":18446744073709551615}"#, "ttlMs"),
        (r#"{"ttlMs":18446744073709551616}"#, "ttlMs"),
        (r#"{"priority":1000.5}"#, "priority"),
        (r#"{"priority":-1001}"#, "priority"),
        (r#"{"priority":1e9}"#, "priority"),
        (r#"{"priority":1e999}"#, "priority"),
        (r#"{"priority":"high"}"#, "priority"),
        (r#"{"priority":null}"#, "priority"),
        (r#"{"priority":NaN}"#, "priority"),
        (r#"{"ttlMs":null}"#, "ttlMs"),
        (r#"{"mode":null}"#, "mode"),
        (r#"{"leaseId":null}"#, "leaseId"),
        (r#"{"requester":null}"#, "requester"),
        (r#"{"idempotencyKey":null}"#, "idempotencyKey"),
        (r#"{"note":"a\u0007b"}"#, "note"),
        (r#"{"note":"two\nlines"}"#, "note"),
        (r#"{"note":7}"#, "note"),
        (&long_note, "note"),
        (r#"{"requester":""}"#, "requester"),
        (r#"{"requester":"job 1"}"#, "requester"),
        (r#"{"requester":"ci/job-1"}"#, "requester"),
        (r#"{"requester":"-job"}"#, "requester"),
        (r#"{"requester":"żuk"}"#, "requester"),
        (&long_name, "requester"),
        (r#"{"mode":"both"}"#, "mode"),
        (r#"{"mode":"Shared"}"#, "mode"),
        (r#"{"idempotencyKey":""}"#, "idempotencyKey"),
        (r#"{"idempotencyKey":"a\tb"}"#, "idempotencyKey"),
        (r#"{"idempotencyKey":"ż"}"#, "idempotencyKey"),
        (&long_key, "idempotencyKey"),
        (r#"{"ttl":"15m"}"#, "ttl"),
        (r#"{"lease_id":"myid"}"#, "lease_id"),
        (r#"{"holderId":"root"}"#, "holderId"),
        (r#"{"ttlMs":1000,"ttlMs":1000}"#, "ttlMs"),
    ];
    table.into_iter().map(|(body, field)| (body.to_owned(), field)).collect()
}

#[track_caller]
fn names_the_field(door: &Door, path: &str, body: &str, field: &str) {
    let told = door.post_text(path, body).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], field, "{path} {body}: {}", told.body);
    assert!(told.message().starts_with(&format!("{field}: ")), "{body}: {}", told.body);
}

#[test]
fn a_field_out_of_its_bounds_is_named_at_both_doors_of_every_node() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        for (body, field) in wrong_terms() {
            names_the_field(&door, "/v1/resources/pixel-a/leases", &body, field);
            let with_target = body.replacen('{', r#"{"resourceId":"pixel-a","#, 1);
            names_the_field(&door, "/v1/lease-requests", &with_target, field);
        }
        assert_eq!(door.get("/v1/leases").body, json!({ "leases": [] }), "nothing was granted by the way");
    }
}

#[test]
fn the_widest_values_that_are_allowed_are_taken() {
    let lab = fleet();
    let body = json!({
        "ttlMs": 14_400_000, "priority": -1000, "note": "ż".repeat(512), "requester": "x".repeat(64),
        "idempotencyKey": "~".repeat(200),
    });
    for (node, resource) in BOTH.into_iter().zip(["pixel-a", "pixel-b"]) {
        let told = acquire(&lab.door(node), resource, body.clone()).expect(201);
        for key in ["ttlMs", "note"] {
            assert_eq!(told.body["lease"][key], body[key]);
        }
    }
}

#[test]
fn a_request_names_either_a_resource_or_a_selector() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let table = [
            ("{}", "select", "name select or resourceId"),
            (r#"{"select":"platform=android","resourceId":"pixel-a"}"#, "select", "not both"),
            (r#"{"select":""}"#, "select", ""),
            (r#"{"select":["platform=android"]}"#, "select", ""),
            (r#"{"resourceId":"a/b/c"}"#, "resourceId", "resource id"),
            (r#"{"resourceId":"-a"}"#, "resourceId", "resource id"),
            (r#"{"resourceId":"pixel-a","noWait":"yes"}"#, "noWait", ""),
        ];
        for (body, field, words) in table {
            names_the_field(&door, "/v1/lease-requests", body, field);
            let told = door.post_text("/v1/lease-requests", body);
            assert!(told.message().contains(words), "{body}: {}", told.body);
        }
        let long = "x".repeat(129);
        for id in ["a%20b", ".a", "%C5%BC", "Rack%2Fpixel-a", long.as_str()] {
            let told = acquire(&door, id, json!({})).refused("BAD_REQUEST", 400);
            assert_eq!(told.details()["field"], "resourceId", "{id}");
        }
    }
}

#[test]
fn a_selector_that_does_not_parse_is_shown_with_a_caret_under_the_place() {
    let lab = fleet();
    for (selector, place) in [("platform=android,os>>14", 20), ("os in (14", 9), ("Platform=android", 0)] {
        let told = lab.door("gateway").post("/v1/lease-requests", &json!({ "select": selector }));
        let told = told.refused("BAD_REQUEST", 400);
        let lines: Vec<&str> = told.message().lines().collect();
        let caret = lines.iter().position(|line| line.trim() == "^").unwrap_or_else(|| panic!("{}", told.message()));
        let written = lines[caret - 1].find(selector).unwrap_or_else(|| panic!("{}", told.message()));
        assert_eq!(lines[caret].find('^'), Some(written + place), "{}", told.message());
        let said = lab.berth(&["lease", "--select", selector]).failed(2);
        assert!(said.lines().any(|line| line.trim() == "^"), "{said}");
    }
}

#[test]
fn a_header_that_stands_for_a_field_has_its_bounds() {
    let lab = fleet();
    let door = lab.door("gateway");
    let long = "x".repeat(201);
    for (name, value) in [
        ("Berth-Requester", "job 1"),
        ("Berth-Requester", ""),
        ("Berth-Requester", "ci/job"),
        ("Idempotency-Key", ""),
        ("Idempotency-Key", &long),
        ("Idempotency-Key", "\u{17c}"),
    ] {
        let call = Call::json("/v1/resources/pixel-a/leases", "{}").header(name, value);
        let told = door.send(&call).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], name, "{}", told.body);
    }
    let body = r#"{"requester":"job-1","idempotencyKey":"k"}"#;
    for (name, field) in [("Berth-Requester", "requester"), ("Idempotency-Key", "idempotencyKey")] {
        let call = Call::json("/v1/resources/pixel-a/leases", body).header(name, "other");
        assert_eq!(door.send(&call).refused("BAD_REQUEST", 400).details()["field"], field);
    }
}

#[test]
fn a_body_must_be_one_json_object_of_at_most_64_kib_that_says_so() {
    let lab = fleet();
    let path = "/v1/resources/pixel-a/leases";
    let padded = |bytes: usize| format!("{{\"requester\":\"r{bytes}\"}}{}", " ".repeat(bytes - 22));
    for node in BOTH {
        let door = lab.door(node);
        for body in ["", "{", "null", "[]", "[{}]", "\"x\"", "{} {}", "ttlMs=1", "{'ttlMs':1}"] {
            names_the_field(&door, path, body, "body");
        }
        let latin = Call { body: b"{\"note\":\"\xff\"}".to_vec(), ..Call::json(path, "") };
        door.send(&latin).refused("BAD_REQUEST", 400);
        for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
            let headers = if kind.is_empty() { vec![] } else { vec![("Content-Type", kind)] };
            let told = door.send(&Call { headers, ..Call::json(path, "{}") }).refused("UNSUPPORTED_MEDIA_TYPE", 415);
            assert!(told.message().contains("Content-Type: application/json"), "{}", told.body);
        }
        let too_large = padded(64 * 1024 + 1);
        assert_eq!(too_large.len(), 64 * 1024 + 1);
        let told = door.post_text(path, &too_large).refused("PAYLOAD_TOO_LARGE", 413);
        assert!(told.message().contains("65536"), "{}", told.body);
    }
    lab.door("gateway").post_text(path, &padded(64 * 1024)).expect(201);
}

#[test]
fn a_renew_and_a_release_have_bounds_too() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let renew = "/v1/leases/mine/renew";
        for (body, field) in [
            (r#"{"ttlMs":0}"#, "ttlMs"),
            (r#"{"ttlMs":14400001}"#, "ttlMs"),
            (r#"{"ttlMs":"1"}"#, "ttlMs"),
            (r#"{"fence":-1}"#, "fence"),
            (r#"{"fence":"7"}"#, "fence"),
            (r#"{"note":"x"}"#, "note"),
            ("[]", "body"),
        ] {
            names_the_field(&door, renew, body, field);
        }
        let long = format!("/v1/leases/{}", "x".repeat(129));
        for (path, field) in [
            ("/v1/leases/a%20b", "leaseId"),
            ("/v1/leases/-a", "leaseId"),
            ("/v1/leases/mine?fence=x", "fence"),
            ("/v1/leases/mine?force=1", "force"),
            (&long, "leaseId"),
        ] {
            assert_eq!(door.delete(path).refused("BAD_REQUEST", 400).details()["field"], field, "{path}");
        }
    }
}

#[test]
fn a_wrong_argument_ends_the_command_with_2_and_names_it() {
    let lab = fleet();
    let long = "x".repeat(513);
    for (arguments, words) in [
        (&["lease", "acquire", "pixel-a", "--duration", "0s"][..], "--duration"),
        (&["lease", "acquire", "pixel-a", "--duration", "15"], "15m"),
        (&["lease", "acquire", "pixel-a", "--priority", "1e9"], "-1000 to 1000"),
        (&["lease", "acquire", "pixel-a", "--priority", "NaN"], "-1000 to 1000"),
        (&["lease", "acquire", "pixel-a", "--note", &long], "512"),
        (&["lease", "acquire", "pixel-a", "--requester", "a b"], "--requester"),
        (&["lease", "acquire", "a b"], "resource id"),
        (&["lease", "--resource", "pixel-a", "--select", "os"], "cannot be used with"),
        (&["lease"], "required"),
        (&["lease", "--platform", "android", "--idempotency-key", ""], "--idempotency-key"),
        (&["lease", "renew", "mine", "--ttl=-5m"], "out of bounds"),
        (&["lease", "release", "a b"], "lease id"),
    ] {
        let said = lab.berth(arguments).failed(2);
        assert!(said.starts_with("error") && said.contains(words), "{arguments:?}: {said}");
        let as_json = lab.berth(&[&["--json"], arguments].concat()).failed(2);
        let line: serde_json::Value = serde_json::from_str(&as_json).unwrap_or_else(|_| panic!("one line: {as_json}"));
        assert_eq!(line["error"]["code"], "BAD_REQUEST", "{as_json}");
        assert!(line["error"]["message"].as_str().is_some_and(|message| message.contains(words)), "{as_json}");
    }
    // Only the node knows its own bound.
    let said = lab.berth(&["lease", "acquire", "pixel-a", "--duration", "4h1ms"]).failed(2);
    assert!(said.starts_with("error BAD_REQUEST: ttlMs: at most 14400000 here (lease.max_ttl)"), "{said}");
}
