//! Many calls at once about one thing.

use super::super::message::{Asked, Leftovers};
use super::lab::{Lab, acquires, joins, reply, resource, waits};
use crate::admission::Rules;
use crate::model::{Ask, Code, WaitPolicy};

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
        assert_eq!(reply(cancel).await.result.map_err(|refusal| refusal.code), Err(Code::Internal));
    }
    lab.settle().await;
    assert_eq!(lab.state(&waiting).await, None);
    lab.release(&held).await.unwrap();
    lab.end(&waiting).await.lease();
}

#[tokio::test(start_paused = true)]
async fn one_requester_that_asks_many_times_at_once_gets_one_lease() {
    let doors: [fn() -> Ask; 4] = [
        || acquires("ci", "a"),
        || waits("ci", "a"),
        || waits("ci", "os=1"),
        || Ask { wait: WaitPolicy::NoWait, ..waits("ci", "os=1") },
    ];
    for door in doors {
        for key in [None, Some("same")] {
            let lab = Lab::new(&[resource("a", "os=1", 1), resource("b", "os=1", 1)], Rules::default()).await;
            let ask = || Ask { key: key.map(|key| key.parse().unwrap()), ..door() };
            let answers: Vec<_> = (0..64).map(|_| lab.begin(ask())).collect();
            let mut leases = Vec::new();
            for answer in answers {
                match reply(answer).await.result {
                    Ok(Asked::Granted(grant)) => leases.push(grant.lease),
                    Ok(Asked::Open(request)) => leases.push(lab.end(&request).await.lease()),
                    Err(refusal) => assert_eq!((refusal.code, key), (Code::RequesterAlreadyLeased, None)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(leases.len(), if key.is_some() { 64 } else { 1 });
            assert!(leases.iter().all(|lease| *lease == leases[0]));
            lab.release(&leases[0]).await.unwrap();
            assert_eq!(lab.leftovers().await, Leftovers::default());
            if key.is_some() {
                let Ok(Asked::Granted(again)) = lab.ask(ask()).await else { panic!("its key is remembered") };
                assert_eq!(again.lease, leases[0], "the first answer again, also when the lease has ended");
            }
        }
    }
}
