//! One order for those who wait by name and by selector.

use super::lab::{End, Lab, acquires, holder, ranked, resource, shared, waits};
use crate::admission::Rules;
use crate::model::RequestId;

#[tokio::test(start_paused = true)]
async fn those_who_wait_by_name_and_by_selector_are_served_in_one_order() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let mut held = lab.lease(acquires("holder", "a")).await;
    let mut waiting = Vec::new();
    for (name, target, priority) in [
        ("w3", "os=1", 0.0),
        ("w4", "a", 0.0),
        ("w1", "a", 2.0),
        ("w5", "os>=1", 0.0),
        ("w6", "a", 0.0),
        ("w2", "os=1", 1.0),
    ] {
        waiting.push(lab.wait(ranked(waits(name, target), priority)).await);
    }
    for next in ["w1", "w2", "w3", "w4", "w5", "w6"] {
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some(next));
        let there = lab.leases_on("a").await;
        assert_eq!(there.iter().map(holder).collect::<Vec<_>>(), [next]);
        held = there[0].clone();
    }
    for request in &waiting {
        assert!(matches!(lab.state(request).await, Some(End::Lease(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn seats_that_become_free_are_taken_in_one_order() {
    let lab = Lab::new(&[resource("a", "os=1", 3)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let mut waiting = Vec::new();
    for (name, target) in [("w1", "os=1"), ("w2", "a"), ("w3", "os=1"), ("w4", "a"), ("w5", "os=1")] {
        waiting.push(lab.wait(shared(waits(name, target))).await);
    }
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("w1"));
    lab.settle().await;
    assert_eq!(holders(&lab, "a").await, ["w1", "w2", "w3"]);
    for (gone, next) in [("w2", "w4"), ("w1", "w5")] {
        let there = lab.leases_on("a").await;
        let gone = there.iter().find(|lease| holder(lease) == gone).unwrap();
        assert_eq!(lab.release(gone).await.unwrap().as_deref(), Some(next));
    }
    assert_eq!(holders(&lab, "a").await, ["w3", "w4", "w5"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_it_alone_stops_those_behind_it_from_sharing() {
    for alone in ["a", "os=1"] {
        let lab = Lab::new(&[resource("a", "os=1", 3)], Rules::default()).await;
        let held = lab.lease(shared(acquires("holder", "a"))).await;
        let first = lab.wait(waits("alone", alone)).await;
        let mut behind: Vec<RequestId> = Vec::new();
        for (name, target) in [("w1", "a"), ("w2", "os=1"), ("w3", "a")] {
            behind.push(lab.wait(shared(waits(name, target))).await);
        }
        lab.settle().await;
        assert_eq!(holders(&lab, "a").await, ["holder"], "{alone}");
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("alone"));
        let alone = lab.end(&first).await.lease();
        assert_eq!(lab.release(&alone).await.unwrap().as_deref(), Some("w1"));
        for request in &behind {
            lab.end(request).await.lease();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_as_become_free_at_once_serve_as_many_in_their_order() {
    let count = 12;
    let names: Vec<String> = (0..count).map(|n| format!("r{n:02}")).collect();
    let resources: Vec<_> = names.iter().map(|name| resource(name, "os=1", 1)).collect();
    let lab = Lab::new(&resources, Rules::default()).await;
    let mut held = Vec::new();
    for name in &names {
        held.push(lab.lease(acquires(&format!("h-{name}"), name)).await);
    }
    let mut waiting = Vec::new();
    for n in 0..2 * count {
        waiting.push(lab.wait(ranked(waits(&format!("w{n:02}"), "os=1"), f64::from(n % 2))).await);
    }
    let released: Vec<_> = held.iter().map(|held| lab.begin_release(held)).collect();
    for released in released {
        assert!(super::lab::said(released).await.unwrap().admitted.is_some());
    }
    for (n, request) in waiting.iter().enumerate() {
        let served = lab.state(request).await.is_some();
        assert_eq!(served, n % 2 == 1, "those of the higher priority, and no others: w{n:02}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_fits_what_is_free_is_served_at_once_beside_twenty_thousand_who_fit_nothing_free() {
    let lab = Lab::new(&[resource("a", "os=1", 1), resource("b", "os=2", 1)], Rules::default()).await;
    lab.lease(acquires("h-a", "a")).await;
    let held = lab.lease(acquires("h-b", "b")).await;
    let asked: Vec<_> = (0..20_000).map(|n| lab.begin(waits(&format!("crowd/{n}"), "os=1"))).collect();
    for asked in asked {
        super::lab::said(asked).await.unwrap();
    }
    let fits = lab.wait(waits("fits", "os=2")).await;
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("fits"));
    let lease = lab.end(&fits).await.lease();
    lab.release(&lease).await.unwrap();
    assert_eq!(holder(&lab.lease(waits("late", "os=2")).await), "late", "it does not wait at all");
}

async fn holders(lab: &Lab, resource: &str) -> Vec<String> {
    let mut holders: Vec<String> = lab.leases_on(resource).await.iter().map(holder).collect();
    holders.sort();
    holders
}
