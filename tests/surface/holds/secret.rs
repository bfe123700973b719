//! The token of a hold: in one answer, and nowhere else.

use serde_json::{Value, json};

use super::{Held, held, hold, same};
use crate::bookings::{HOUR, after, ahead, reader, window};
use crate::http::{Call, Door};
use crate::lab::Lab;
use crate::waiting::{HOST, agents, text};

/// A host that says everything it can say.
fn talkative() -> Lab {
    let mut lab = Lab::new(HOST);
    lab.set("BERTH_LOG", "trace");
    lab.start("host");
    lab.wait_ready("host");
    lab
}

/// The part of a token that is secret.
fn digits(token: &str) -> &str {
    token.strip_prefix("bht_").unwrap_or_else(|| panic!("{token}"))
}

/// Every file of the node's state and of what it has said, as it stands.
fn files(lab: &Lab) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![lab.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => {
                    found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
                }
                // The socket.
                _ => {}
            }
        }
    }
    found
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_token_has_256_random_bits_and_none_is_like_another() {
    let lab = talkative();
    let [ci] = agents(&lab, ["ci"]);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..20 {
        let made = held(&ci, "board", after(ahead(7_200), round * HOUR), HOUR);
        let digits = digits(&made.token).to_owned();
        assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digits}");
        assert!(seen.insert(digits));
        made.release(&ci).expect(200);
    }
    // No place has the same digit in all of them, as a counter or a clock would.
    for place in 0..64 {
        let here: std::collections::BTreeSet<&str> = seen.iter().map(|digits| &digits[place..=place]).collect();
        assert!(here.len() > 1, "place {place} is always {here:?}");
    }
}

#[test]
fn a_token_is_shown_once_and_is_in_no_log_event_error_list_or_file() {
    let mut lab = talkative();
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let admin = lab.door("host");
    let starts_at = ahead(7_200);
    let mut body = window(starts_at, HOUR);
    body["idempotencyKey"] = json!("k");
    let first = Held::told(&hold(&ci, "board", &body).expect(201));
    let second = Held::told(&hold(&ci, "board", &body).expect(201));
    let released = held(&ci, "bench", starts_at, HOUR);
    let mut short = window(starts_at, HOUR);
    short["ttlMs"] = json!(1);
    let expired = Held::told(&hold(&ci, "pixel-a", &short).expect(201));
    let refused = "bht_00000000000000000000000000000000000000000000000000000000deadbeef";
    let mut said: Vec<Value> = Vec::new();
    let mut hear = |told: crate::http::Answer| said.push(json!(format!("{:?}", told.whole())));
    hear(first.confirm(&ci));
    hear(released.release(&other));
    hear(expired.confirm(&ci));
    hear(second.confirm(&other));
    hear(second.confirm(&other));
    hear(second.release(&other));
    for token in [refused, second.token.as_str()] {
        // In a place where it does not belong it is repeated by no refusal.
        hear(ci.post(&format!("{}/confirm", second.path()), &json!({ "token": { "bht": token } })));
        hear(ci.post(&format!("{}/confirm", second.path()), &json!({ "token": [token] })));
        hear(ci.post_text(&format!("{}/confirm", second.path()), &format!("{{\"token\":\"{token}\"")));
        hear(hold(&ci, "board", &json!({ "token": token })));
        let path = second.path();
        let call = Call { method: "DELETE", path: &path, ..Call::default() };
        hear(ci.send(&call.clone().header("Berth-Hold-Token", token).header("Berth-Hold-Token", token)));
        hear(ci.send(&call.header("Berth-Hold-Token", token)));
        hear(Door::tcp(lab.port("host")).with_token(token).get("/v1/status"));
    }
    for door in [&ci, &admin] {
        for made in [&first, &second, &released, &expired] {
            hear(door.get(&made.path()));
        }
        for list in ["resources/board/holds", "resources/bench/holds", "bookings", "events?limit=1000", "status"] {
            hear(door.get(&format!("/v1/{list}")));
        }
    }
    hear(admin.get("/v1/doctor"));
    // Also what is said and written while it goes down and comes up again.
    assert!(lab.terminate("host").success());
    lab.start("host");
    lab.wait_ready("host");
    hear(admin.get("/v1/events?limit=1000"));
    lab.kill_9("host");
    assert!(lab.said("host").contains("/confirm"), "the log says what was asked for");
    let files = files(&lab);
    assert!(files.iter().any(|(name, bytes)| name.ends_with("berth.db") && bytes.len() > 4_096));
    for made in [&first, &second, &released, &expired] {
        let secret = digits(&made.token);
        for answer in &said {
            assert!(!text(answer).contains(secret), "{answer}");
        }
        let upper = secret.to_ascii_uppercase();
        let raw: Vec<u8> =
            (0..32).map(|byte| u8::from_str_radix(&secret[2 * byte..2 * byte + 2], 16).unwrap()).collect();
        for (name, bytes) in &files {
            for form in [secret.as_bytes(), upper.as_bytes(), &raw] {
                assert!(!contains(bytes, form), "{name} has a token");
            }
        }
    }
    // Of a refused one nothing is kept either.
    assert!(files.iter().all(|(_, bytes)| !contains(bytes, b"deadbeef")));
    // What is kept is 32 bytes from which it cannot be told.
    let other: i64 = reader(&lab)
        .query_row("SELECT count(*) FROM hold WHERE length(token_hash) <> 32 OR token_hash IS NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(other, 0);
}

#[test]
fn a_wrong_token_opens_nothing_and_is_told_nothing() {
    let lab = talkative();
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let made = held(&ci, "board", ahead(7_200), HOUR);
    let foreign = held(&other, "bench", ahead(7_200), HOUR);
    let mut almost = made.token.clone();
    let last = if almost.ends_with('0') { '1' } else { '0' };
    almost.pop();
    almost.push(last);
    let upper = made.token.to_ascii_uppercase();
    let longer = format!("{} ", made.token);
    let mut answers = Vec::new();
    for token in ["", "x", "bht_", &almost, &upper, &longer, &made.token[..67], &foreign.token] {
        let wrong = Held { hold: made.hold.clone(), token: token.to_owned() };
        for door in [&ci, &other] {
            answers.push(wrong.confirm(door).refused("INSUFFICIENT_PERMISSIONS", 403).whole());
        }
        // A header cannot say the blank at its end.
        if !token.ends_with(' ') {
            answers.push(wrong.release(&ci).refused("INSUFFICIENT_PERMISSIONS", 403).whole());
            // An admin who shows one is taken at its word.
            answers.push(wrong.release(&lab.door("host")).refused("INSUFFICIENT_PERMISSIONS", 403).whole());
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    same(&made.shown(&ci), &made.hold);
    made.confirm(&ci).expect(200);
}
