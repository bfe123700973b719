//! A resource's actor dies with something about its calendar in flight: the answer is what the disk holds.

use super::calls::{ADVISORY, Answer, MINUTE, admin, agent, booked, books, holds, minute, slot, token};
use super::lab::{Lab, said};
use crate::admission::Rules;
use crate::model::{BookingId, BookingStatus, Code, Every, HoldId, HoldStatus, Repeat, Window};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk};

/// When the actor dies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// The command is on its way to it.
    Before,
    /// What it decided waits for the disk.
    Writing,
    /// That could not be written.
    Failed,
    /// The command is done, or just being told.
    Told,
}

const STEPS: [Step; 4] = [Step::Before, Step::Writing, Step::Failed, Step::Told];

/// What is there before: a series at the minutes 60, a day later and so on, a hold of minute 100, one that is confirmed
/// and one that was given back.
struct There {
    lab: Lab,
    series: Vec<BookingId>,
    hold: HoldId,
    confirmed: HoldId,
    booking: BookingId,
    released: HoldId,
}

async fn there() -> There {
    let lab = Lab::new(&[booked("a", "", ADVISORY), booked("b", "", ADVISORY)], Rules::default()).await;
    let repeat = Repeat { every: Every::Day, until: "2026-01-04".parse().unwrap(), tz: "UTC".parse().unwrap() };
    let answer = said(lab.call(agent("ci"), books("a", slot(60, 90), Some(repeat)))).await.unwrap();
    let CalendarAnswer::Booked { bookings, .. } = answer else { panic!("a series") };
    let series = bookings.iter().map(|booking| booking.id.clone()).collect();
    let keyed = lab.call(agent("ci"), holds("a", slot(100, 110), 10 * MINUTE, Some("key"), token("ci")));
    let hold = super::calls::one_hold(said(keyed).await.unwrap()).id;
    let confirmed = lab.hold("ci", "a", slot(110, 120), 10 * MINUTE).await.unwrap().id;
    let booking = lab.confirm("ci", &confirmed).await.unwrap().id.clone();
    let released = lab.hold("ci", "a", slot(120, 130), 10 * MINUTE).await.unwrap().id;
    lab.give_back("ci", &released).await.unwrap();
    There { lab, series, hold, confirmed, booking, released }
}

impl There {
    /// Makes a call while the actor dies, and brings what was answered.
    async fn meets_death(&self, step: Step, call: impl Fn(&There) -> Answer) -> Result<CalendarAnswer, Code> {
        let lab = &self.lab;
        let answer = match step {
            Step::Before => {
                lab.panic("a");
                call(self)
            }
            Step::Writing | Step::Failed => {
                let database = lab.database();
                if step == Step::Failed {
                    for (table, at) in [
                        ("booking", "UPDATE"),
                        ("booking", "INSERT"),
                        ("hold", "UPDATE"),
                        ("hold", "INSERT"),
                        ("resource", "UPDATE"),
                    ] {
                        let body = format!("BEFORE {at} ON {table} BEGIN DELETE FROM nothing_there; END");
                        database.execute_batch(&format!("CREATE TRIGGER fault_{table}_{at} {body}")).unwrap();
                    }
                }
                let commits = lab.hold_commits();
                let answer = call(self);
                lab.turn().await;
                lab.panic("a");
                lab.turn().await;
                drop(commits);
                let said = super::lab::reply(answer).await;
                if step == Step::Failed {
                    let select = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema WHERE name LIKE 'fault_%'";
                    let drop: String = database.query_row(select, [], |row| row.get(0)).unwrap();
                    database.execute_batch(&drop).unwrap();
                }
                return said.result.map_err(|refusal| refusal.code);
            }
            Step::Told => {
                let answer = call(self);
                lab.panic("a");
                answer
            }
        };
        said(answer).await
    }

    async fn has(&self, from: i64, to: i64) -> bool {
        self.lab.scheduled("a").await.contains(&Window::new(minute(from), minute(to)).unwrap())
    }
}

type Call = fn(&There) -> Answer;

/// What a call is to bring about, and whether it has.
struct Case {
    name: &'static str,
    call: Call,
    done: for<'a> fn(&'a There) -> std::pin::Pin<Box<dyn Future<Output = bool> + 'a>>,
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "book",
            call: |it| it.lab.begin_book("ci", "a", slot(200, 210)),
            done: |it| Box::pin(it.has(200, 210)),
        },
        Case {
            name: "book a series",
            call: |it| {
                let repeat =
                    Repeat { every: Every::Day, until: "2026-01-03".parse().unwrap(), tz: "UTC".parse().unwrap() };
                it.lab.call(agent("ci"), books("a", slot(200, 210), Some(repeat)))
            },
            done: |it| Box::pin(async { it.has(200, 210).await && it.has(200 + 2 * 1440, 210 + 2 * 1440).await }),
        },
        Case {
            name: "hold",
            call: |it| it.lab.begin_hold("ci", "a", slot(200, 210), MINUTE),
            done: |it| Box::pin(async { it.lab.book("x", "a", slot(200, 210)).await.is_err() }),
        },
        Case {
            name: "hold again",
            call: |it| it.lab.call(agent("ci"), holds("a", slot(100, 110), MINUTE, Some("key"), token("new"))),
            done: |it| Box::pin(async { it.lab.give_back("new", &it.hold).await.is_ok() }),
        },
        Case {
            name: "confirm",
            call: |it| it.lab.begin_confirm("ci", &it.hold),
            done: |it| Box::pin(it.has(100, 110)),
        },
        Case {
            name: "release",
            call: |it| it.lab.begin_give_back("ci", &it.hold),
            done: |it| Box::pin(async { it.lab.one_hold(&it.hold).await.unwrap().status == HoldStatus::Released }),
        },
        Case {
            name: "reschedule",
            call: |it| it.lab.begin_move("ci", &it.booking, slot(200, 210)),
            done: |it| Box::pin(it.has(200, 210)),
        },
        Case {
            name: "cancel",
            call: |it| it.lab.begin_give_up("ci", &it.booking),
            done: |it| Box::pin(async { it.lab.status(&it.booking).await == BookingStatus::Cancelled }),
        },
        Case {
            name: "cancel the following",
            call: |it| {
                let ask = CalendarAsk::Cancel { booking: it.series[1].clone(), following: true };
                it.lab.call(agent("ci"), ask)
            },
            done: |it| Box::pin(async { it.lab.status(&it.series[3]).await == BookingStatus::Cancelled }),
        },
        Case {
            name: "pause",
            call: |it| it.lab.begin_pause(Some("a"), true),
            done: |it| {
                Box::pin(async { it.lab.hold("ci", "a", slot(300, 310), MINUTE).await == Err(Code::HoldsPaused) })
            },
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn what_is_answered_after_a_death_is_what_the_disk_holds() {
    for case in cases() {
        for step in STEPS {
            let there = there().await;
            let told = there.meets_death(step, case.call).await;
            there.lab.settle().await;
            there.lab.agrees().await;
            assert_eq!((case.done)(&there).await, told.is_ok(), "{} {step:?}: {told:?}", case.name);
            match step {
                Step::Failed => assert_eq!(told.as_ref().unwrap_err(), &Code::Internal, "{}", case.name),
                Step::Writing => assert!(told.is_ok(), "{}: {told:?}", case.name),
                Step::Before | Step::Told => {}
            }
            // Whatever came of it, it is known here, and may be asked for again.
            if let Ok(CalendarAnswer::Booked { bookings, .. }) = &told {
                for booking in bookings {
                    assert_eq!(there.lab.booking(&booking.id).await, *booking);
                }
            }
            there.lab.is_sound().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_series_of_which_one_was_cancelled_before_goes_or_stays_as_the_answer_says() {
    for step in STEPS {
        let there = there().await;
        there.lab.give_up("ci", &there.series[1]).await.unwrap();
        let told = there.meets_death(step, |it| {
            let ask = CalendarAsk::Cancel { booking: it.series[1].clone(), following: true };
            it.lab.call(agent("ci"), ask)
        });
        let told = told.await;
        let gone = there.lab.status(&there.series[3]).await == BookingStatus::Cancelled;
        assert_eq!(gone, told.is_ok(), "{step:?}: {told:?}");
        if let Ok(CalendarAnswer::Cancelled { following, .. }) = told {
            assert_eq!(following.len(), 2);
        }
        there.lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_by_a_death_what_it_may_not_have() {
    let calls: [(&str, Call); 6] = [
        ("confirm", |it| it.lab.begin_confirm("thief", &it.confirmed)),
        ("release", |it| it.lab.begin_give_back("thief", &it.released)),
        ("release without a token", |it| {
            it.lab.call(agent("thief"), CalendarAsk::Release { hold: it.released.clone(), token: None })
        }),
        ("reschedule", |it| it.lab.begin_move("thief", &it.booking, slot(110, 120))),
        ("cancel", |it| it.lab.begin_give_up("thief", &it.series[0])),
        ("cancel the following", |it| {
            let ask = CalendarAsk::Cancel { booking: it.series[0].clone(), following: true };
            it.lab.call(agent("thief"), ask)
        }),
    ];
    for (name, call) in calls {
        for step in [Step::Before, Step::Writing, Step::Told] {
            let there = there().await;
            there.lab.give_up("ci", &there.series[0]).await.unwrap();
            let told = there.meets_death(step, call).await.unwrap_err();
            assert!([Code::Internal, Code::InsufficientPermissions].contains(&told), "{name} {step:?}: {told:?}");
            there.lab.is_sound().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_admin_needs_no_token_over_a_death_either() {
    for step in [Step::Writing, Step::Told] {
        let there = there().await;
        let release = |it: &There| it.lab.call(admin(), CalendarAsk::Release { hold: it.hold.clone(), token: None });
        let told = there.meets_death(step, release).await;
        let released = there.lab.one_hold(&there.hold).await.unwrap().status == HoldStatus::Released;
        assert_eq!(told.is_ok(), released, "{step:?}");
        there.lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_there_ends_when_it_was_to_end_whatever_dies_meanwhile() {
    let there = there().await;
    let lab = &there.lab;
    lab.pass(5 * MINUTE).await;
    lab.clock.step_wall_ms(1_000);
    lab.panic("a");
    lab.pass(5 * MINUTE - std::time::Duration::from_millis(5)).await;
    assert_eq!(lab.one_hold(&there.hold).await.unwrap().status, HoldStatus::Active);
    lab.pass(std::time::Duration::from_millis(10)).await;
    assert_eq!(lab.one_hold(&there.hold).await.unwrap().status, HoldStatus::Expired);
    lab.is_sound().await;
}
