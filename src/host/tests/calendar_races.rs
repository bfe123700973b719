//! Several at once want the same time of a resource: one of them has it, and no slot is claimed twice, in memory or on
//! disk.

use std::time::Duration;

use super::calls::{ADVISORY, AUTO_ACQUIRE, Answer, ENFORCED, MINUTE, agent, booked, one_booking, one_hold, slot};
use super::lab::{Lab, acquires, holder, said};
use super::seeds::{Random, Seed, seeds};
use crate::admission::Rules;
use crate::model::{BookingId, BookingPolicy, BookingStatus, Code, HoldId, HoldStatus};
use crate::wire::calendar::CalendarAsk;

async fn lab() -> Lab {
    let mut rules = Rules::default();
    (rules.limits.holds_per_principal, rules.limits.bookings_per_principal) = (1_000, 10_000);
    Lab::new(&[booked("a", "os=1", ENFORCED), booked("b", "os=1", ADVISORY)], rules).await
}

/// Runs a race for each seed on one node, from a minute of its own on, and wants to see every end of it.
async fn race<const ENDS: usize>(rounds: u64, run: impl AsyncFn(&Lab, &mut Random, i64) -> usize) {
    let mut seen = [0; ENDS];
    let mut lab = lab().await;
    for (round, seed) in seeds(rounds).enumerate() {
        let _seed = Seed(seed);
        if round % 100 == 99 {
            lab.stop().await;
            lab = self::lab().await;
        }
        let mut random = Random::new(seed);
        let minutes = i64::try_from(lab.clock.now().run.0.as_secs() / 60).unwrap();
        seen[run(&lab, &mut random, minutes + 10).await] += 1;
        lab.is_sound().await;
    }
    let all = std::env::var("BERTH_TEST_SEED").is_err();
    assert!(!all || seen.iter().all(|count| *count > 0), "the race had one end only: {seen:?}");
}

/// Makes calls in another order for each seed.
async fn shuffled(
    random: &mut Random,
    mut calls: Vec<(usize, Box<dyn FnOnce() -> Answer + '_>)>,
) -> Vec<(usize, Answer)> {
    let mut begun = Vec::new();
    while !calls.is_empty() {
        let next = calls.swap_remove(usize::try_from(random.below(calls.len() as u64)).unwrap());
        begun.push((next.0, (next.1)()));
        random.turns().await;
    }
    begun
}

#[tokio::test(start_paused = true)]
async fn a_hold_a_booking_and_a_walk_up_that_want_the_same_time_leave_one_claim() {
    race::<2>(150, async |lab, random, from| {
        let window = slot(from, from + 5);
        let (mut held, mut made, mut leased): (Option<HoldId>, Option<BookingId>, _) = (None, None, None);
        let walk_up = random.one_in(2).then(|| lab.begin(acquires("walks-up", "a")));
        let calls: Vec<(usize, Box<dyn FnOnce() -> Answer>)> = vec![
            (0, Box::new(|| lab.begin_hold("holder", "a", window, MINUTE))),
            (1, Box::new(|| lab.begin_book("booker", "a", window))),
        ];
        let begun = shuffled(random, calls).await;
        let walk_up = walk_up.unwrap_or_else(|| lab.begin(acquires("walks-up", "a")));
        for (which, answer) in begun {
            match (which, said(answer).await) {
                (0, Ok(answer)) => held = Some(one_hold(answer).id),
                (1, Ok(answer)) => made = Some(one_booking(answer).id.clone()),
                (0, Err(Code::HoldConflict)) | (1, Err(Code::SlotHeld)) => {}
                other => panic!("{other:?}"),
            }
        }
        match said(walk_up).await {
            Ok(super::super::message::Asked::Granted(grant)) => leased = Some(grant.lease),
            Err(Code::ResourceBooked) => {}
            other => panic!("{other:?}"),
        }
        assert!(held.is_some() != made.is_some(), "one of the two has it");
        lab.agrees().await;
        if let Some(lease) = leased {
            lab.release(&lease).await.unwrap();
        }
        match (held, made) {
            (Some(hold), _) => {
                lab.give_back("holder", &hold).await.unwrap();
                0
            }
            (_, made) => {
                lab.give_up("booker", &made.unwrap()).await.unwrap();
                1
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_confirmed_twice_and_released_at_once_becomes_one_booking_or_none() {
    race::<2>(150, async |lab, random, from| {
        let hold = lab.hold("ci", "a", slot(from, from + 5), MINUTE).await.unwrap().id;
        let dies = random.one_in(3);
        let calls: Vec<(usize, Box<dyn FnOnce() -> Answer>)> = vec![
            (0, Box::new(|| lab.begin_confirm("ci", &hold))),
            (0, Box::new(|| lab.begin_confirm("ci", &hold))),
            (1, Box::new(|| lab.begin_give_back("ci", &hold))),
        ];
        let begun = shuffled(random, calls).await;
        if dies {
            lab.panic("a");
        }
        let mut bookings = Vec::new();
        for (which, answer) in begun {
            match (which, said(answer).await) {
                (0, Ok(answer)) => bookings.push(one_booking(answer).id.clone()),
                (1, Ok(answer)) => assert_eq!(one_hold(answer).status, HoldStatus::Released),
                (_, Err(Code::HoldExpired)) => {}
                (_, Err(Code::Internal)) if dies => {}
                other => panic!("{other:?}"),
            }
        }
        bookings.dedup();
        assert!(bookings.len() <= 1, "{bookings:?}");
        lab.agrees().await;
        let now = lab.one_hold(&hold).await.unwrap();
        match now.booking {
            Some(booking) => {
                assert!(bookings.is_empty() || bookings == [booking.clone()]);
                lab.give_up("ci", &booking).await.unwrap();
                0
            }
            None => {
                assert_eq!(bookings, []);
                if now.status == HoldStatus::Active {
                    lab.give_back("ci", &hold).await.unwrap();
                }
                1
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bookings_that_are_moved_across_each_other_leave_no_slot_to_two() {
    race::<3>(150, async |lab, random, from| {
        let windows: Vec<_> = (0..3).map(|n| slot(from + 10 * n, from + 10 * n + 10)).collect();
        let mut bookings = Vec::new();
        for (who, window) in ["one", "two"].iter().zip(&windows) {
            bookings.push(lab.book(who, "a", *window).await.unwrap().id.clone());
        }
        let free = windows[2];
        let calls: Vec<(usize, Box<dyn FnOnce() -> Answer>)> = vec![
            (0, Box::new(|| lab.begin_move("one", &bookings[0], free))),
            (1, Box::new(|| lab.begin_move("two", &bookings[1], free))),
            (2, Box::new(|| lab.begin_move("two", &bookings[1], windows[0]))),
        ];
        let begun = shuffled(random, calls).await;
        let mut moved = [false; 3];
        for (which, answer) in begun {
            match said(answer).await {
                Ok(_) => moved[which] = true,
                Err(code) => assert_eq!(code, Code::BookingConflict),
            }
        }
        lab.agrees().await;
        for (who, booking) in ["one", "two"].iter().zip(&bookings) {
            lab.give_up(who, booking).await.unwrap();
        }
        match moved {
            [true, false, true] => 0,
            [true, false, false] => 1,
            [false, true, _] => 2,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_64_holds_on_one_slot_exactly_one_is_made_whoever_dies() {
    race::<1>(30, async |lab, random, from| {
        let dies = random.one_in(2);
        let mut answers = Vec::new();
        for n in 0..64 {
            answers.push((n, lab.begin_hold(&format!("c{n}"), "a", slot(from, from + 5), MINUTE)));
            if random.one_in(8) {
                random.turns().await;
                if dies {
                    lab.panic("a");
                }
            }
        }
        let mut made = Vec::new();
        for (n, answer) in answers {
            match said(answer).await {
                Ok(answer) => made.push((n, one_hold(answer).id)),
                Err(Code::HoldConflict) => {}
                Err(Code::Internal) if dies => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(made.len(), 1, "{made:?}");
        lab.agrees().await;
        lab.give_back(&format!("c{}", made[0].0), &made[0].1).await.unwrap();
        0
    })
    .await;
}

/// Someone who makes and moves and gives up bookings and holds, for a while.
async fn customer(lab: &Lab, mut random: Random, who: String) {
    let (mut bookings, mut held): (Vec<BookingId>, Vec<HoldId>) = (Vec::new(), Vec::new());
    for _ in 0..25 {
        random.turns().await;
        if random.one_in(3) {
            lab.pass(random.ms(1, 90_000)).await;
        }
        let minutes = i64::try_from(lab.clock.now().run.0.as_secs() / 60).unwrap();
        let from = minutes + 1 + i64::try_from(random.below(12)).unwrap();
        let window = slot(from, from + 1 + i64::try_from(random.below(4)).unwrap());
        let resource = random.pick(&["a", "b"]);
        let one = |len: usize, random: &mut Random| usize::try_from(random.below(len as u64)).unwrap();
        let answer = match random.below(7) {
            0 | 1 => lab.begin_book(&who, resource, window),
            2 | 3 => lab.begin_hold(&who, resource, window, random.ms(1_000, 200_000)),
            4 if !held.is_empty() => lab.begin_confirm(&who, &held.swap_remove(one(held.len(), &mut random))),
            5 if !held.is_empty() => lab.begin_give_back(&who, &held.swap_remove(one(held.len(), &mut random))),
            5 if !bookings.is_empty() => {
                lab.begin_give_up(&who, &bookings.swap_remove(one(bookings.len(), &mut random)))
            }
            6 if !bookings.is_empty() => lab.begin_move(&who, &bookings[one(bookings.len(), &mut random)], window),
            _ => lab.call(agent(&who), CalendarAsk::Holds(resource.parse().unwrap())),
        };
        if random.one_in(8) {
            // Whoever has gone hears nothing; what has begun goes on.
            continue;
        }
        use crate::wire::calendar::CalendarAnswer as Is;
        match said(answer).await {
            Ok(Is::Booked { bookings: made, .. }) => bookings.extend(made.iter().map(|it| it.id.clone())),
            Ok(Is::Booking(made)) => {
                bookings.retain(|id| *id != made.id);
                bookings.push(made.id.clone());
            }
            Ok(Is::Hold(hold)) if hold.status == HoldStatus::Active => held.push(hold.id),
            Ok(_) => {}
            Err(Code::BookingConflict | Code::SlotHeld | Code::HoldConflict | Code::HoldExpired | Code::BadRequest) => {
            }
            Err(Code::Internal) => {}
            Err(code) => panic!("{code:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_book_hold_and_move_while_actors_die_no_slot_is_claimed_twice() {
    for seed in seeds(5) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let policies = [
            ADVISORY,
            ENFORCED,
            AUTO_ACQUIRE,
            BookingPolicy { auto_acquire: true, ..ENFORCED },
            BookingPolicy { no_show_after: Some(MINUTE), ..ENFORCED },
        ];
        let resources = [booked("a", "", random.pick(&policies)), booked("b", "", random.pick(&policies))];
        let mut rules = Rules::default();
        (rules.limits.holds_per_principal, rules.limits.bookings_per_principal) = (1_000, 10_000);
        let lab = Lab::new(&resources, rules).await;
        let customers = (0..6).map(|n| customer(&lab, Random::new(seed ^ (n + 1) << 32), format!("c{n}")));
        let chaos = async {
            for _ in 0..20 {
                lab.pass(random.ms(1, 60_000)).await;
                match random.below(4) {
                    0 => {
                        let (statement, table) =
                            random.pick(&[("INSERT", "hold"), ("UPDATE", "booking"), ("INSERT", "lease")]);
                        let fault = lab.lose(statement, table);
                        lab.pass(random.ms(1, 5_000)).await;
                        drop(fault);
                    }
                    1 => {
                        let by = i64::try_from(random.below(240_000)).unwrap();
                        lab.clock.step_wall_ms(by - 60_000);
                    }
                    _ => lab.panic(random.pick(&["a", "b"])),
                }
                lab.agrees_now().await;
            }
        };
        futures_util::future::join(futures_util::future::join_all(customers), chaos).await;
        lab.pass(Duration::from_secs(20)).await;
        lab.agrees().await;
        let lab = lab.restart().await;
        lab.agrees().await;
        lab.pass(45 * MINUTE).await;
        lab.is_sound().await;
        // What is not stopped goes on ticking.
        lab.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_races_with_whoever_walks_up_grants_one_lease_and_settles_the_booking() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let lab = Lab::new(&[booked("a", "os=1", AUTO_ACQUIRE)], Rules::default()).await;
        let booking = lab.book("booker", "a", slot(1, 5)).await.unwrap();
        lab.pass(random.ms(59_997, 60_004)).await;
        random.turns().await;
        let who = random.pick(&["other", "booker"]);
        let asked = lab.begin(acquires(who, "a"));
        if random.one_in(3) {
            lab.panic("a");
        }
        let told = said(asked).await;
        lab.pass(Duration::from_secs(10)).await;
        let leases = lab.leases_on("a").await;
        assert_eq!(leases.len(), 1, "{told:?}");
        if let Ok(super::super::message::Asked::Granted(grant)) = &told {
            assert_eq!(leases[0].fence, grant.lease.fence, "what was told is there");
        }
        let now = lab.booking(&booking.id).await;
        match holder(&leases[0]).as_str() {
            "booker" => {
                assert_eq!((now.status, now.lease_id.as_ref()), (BookingStatus::Fulfilled, Some(&leases[0].id)))
            }
            _ => assert_eq!(now.status, BookingStatus::Scheduled),
        }
        lab.release(&leases[0]).await.unwrap();
        lab.pass(5 * MINUTE).await;
        lab.is_sound().await;
        // What is not stopped goes on ticking.
        lab.stop().await;
    }
}
