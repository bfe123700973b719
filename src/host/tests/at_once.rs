//! Many calls at once about one thing.

use super::super::message::Asked;
use super::lab::{Lab, acquires, joins, reply, resource, waits};
use crate::admission::Rules;
use crate::model::{Ask, Code};

#[tokio::test(start_paused = true)]
async fn the_same_ask_to_join_many_times_at_once_is_one_place_in_the_waiting_room() {
    let lab = Lab::new(&[resource("a", "", 1)], Rules::default()).await;
    lab.lease(acquires("holder", "a")).await;
    let same = || Ask { key: Some("same".parse().unwrap()), ..joins("ci", "a") };
    let answers: Vec<_> = (0..64).map(|_| lab.begin(same())).collect();
    for answer in answers {
        let said = reply(answer).await.result;
        assert!(matches!(said, Ok(Asked::Pending(_))), "{said:?}");
    }
    assert_eq!(lab.room("a").await, ["ci"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_cancel_was_answered_as_not_done_goes_on_waiting() {
    let lab = Lab::new(&[resource("a", "", 1)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let waiting = lab.wait(waits("ci", "a")).await;
    lab.panic("a");
    let cancels = [lab.begin_cancel(&waiting), lab.begin_cancel(&waiting)];
    for cancel in cancels {
        assert_eq!(reply(cancel).await.map_err(|refusal| refusal.code), Err(Code::Internal));
    }
    lab.settle().await;
    assert_eq!(lab.state(&waiting).await, None);
    lab.release(&held).await.unwrap();
    lab.end(&waiting).await.lease();
}
