//! Lists of bookings: filtered, and page by page.

use serde_json::{Value, json};

use super::{HOUR, after, ahead, booked, listed, path, written};
use crate::http::Door;
use crate::waiting::{agents, host, text};

/// Every page of a list, each with at most so many.
#[track_caller]
fn pages(door: &Door, list: &str, limit: usize) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut query = format!("limit={limit}");
    loop {
        let told = door.get(&format!("{list}?{query}")).expect(200).body;
        let page = told["bookings"].as_array().expect("a list").clone();
        assert!(page.len() <= limit);
        pages.push(page);
        match told.get("next") {
            Some(next) => query = format!("limit={limit}&after={}", text(next)),
            None => return pages,
        }
    }
}

#[test]
fn a_list_is_read_page_by_page_with_nothing_twice_and_nothing_left_out() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let noon = ahead(86_400);
    let mut made = Vec::new();
    for slot in 0..7 {
        for resource in ["board", "bench"] {
            // At the same time on both, so that their order is not that of their starts alone.
            made.push(booked(&ci, resource, after(noon, slot * HOUR), HOUR));
        }
    }
    booked(&other, "pixel-a", noon, HOUR);
    let board: Vec<Value> = made.iter().filter(|booking| booking["resourceId"] == "board").cloned().collect();
    for limit in [1, 3, 7, 500] {
        let read = pages(&ci, "/v1/resources/board/bookings", limit);
        assert_eq!(read.concat(), board, "{limit} on a page");
        assert!(read[..read.len() - 1].iter().all(|page| page.len() == limit));
        made.sort_by_key(|booking| (text(&booking["startsAt"]), text(&booking["id"])));
        assert_eq!(pages(&ci, "/v1/bookings", limit).concat(), made, "{limit} on a page");
    }
    assert_eq!(pages(&lab.door("host"), "/v1/bookings", 4).concat().len(), 15);
    // What is made or given up meanwhile moves no page.
    let first = ci.get("/v1/resources/board/bookings?limit=2").expect(200).body;
    ci.delete(&path(&board[1])).expect(200);
    booked(&ci, "board", after(noon, -HOUR), HOUR);
    let query = format!("/v1/resources/board/bookings?limit=2&after={}", text(&first["next"]));
    assert_eq!(ci.get(&query).expect(200).body["bookings"], json!(board[2..4]));
}

#[test]
fn a_list_has_what_its_filters_say() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let noon = ahead(86_400);
    let ids = |bookings: Vec<Value>| bookings.into_iter().map(|booking| text(&booking["id"])).collect::<Vec<_>>();
    let [a, b, c] = [(&ci, 0), (&other, 1), (&ci, 2)].map(|(door, slot)| {
        let booking = booked(door, "board", after(noon, slot * HOUR), HOUR);
        text(&booking["id"])
    });
    ci.delete(&format!("/v1/bookings/{c}")).expect(200);
    let hour = |at: i64| written(after(noon, at * HOUR));
    for (query, expected) in [
        (String::new(), vec![&a, &b, &c]),
        ("?status=scheduled".to_owned(), vec![&a, &b]),
        ("?status=cancelled".to_owned(), vec![&c]),
        ("?status=missed".to_owned(), vec![]),
        ("?mine=true".to_owned(), vec![&a, &c]),
        ("?mine=false".to_owned(), vec![&a, &b, &c]),
        ("?mine=true&status=scheduled".to_owned(), vec![&a]),
        // Windows are half-open here too: one that ends then, or starts then, is not in it.
        (format!("?from={}", hour(1)), vec![&b, &c]),
        (format!("?to={}", hour(1)), vec![&a]),
        (format!("?from={}&to={}", hour(1), hour(2)), vec![&b]),
        (format!("?from={}&to={}", hour(3), hour(9)), vec![]),
    ] {
        assert_eq!(ids(listed(&ci, "board", &query)).iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let admin = lab.door("host");
    let all = |query: &str| {
        let told = admin.get(&format!("/v1/bookings{query}")).expect(200).body["bookings"].take();
        ids(told.as_array().unwrap().clone())
    };
    assert_eq!(all("?status=scheduled"), [a, b]);
    assert_eq!(all("?mine=true"), Vec::<String>::new(), "an admin has none of its own");
}
