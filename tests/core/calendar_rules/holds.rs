//! Holds, by example: each sentence of SPEC §6 that the calendar alone answers for.

use std::time::Duration;

use berth::admission::calendar::{CalendarCommand, CalendarReply, HeldSlot};
use berth::admission::history::event_of;
use berth::admission::resource::Change;
use berth::clock::{Now, RunTime};
use berth::model::{Asker, BookingStatus, Code, HoldStatus, Refusal, Slot, TokenHash};

use super::diary::{Diary, admin, agent, at, book, booking, hold, slot};
use crate::sample;

const TEN: (&str, &str) = ("10:00:00", "11:00:00");

fn token(number: usize) -> TokenHash {
    TokenHash::of(&format!("token {number}"))
}

/// Number `number` asks, with the token of that number.
fn ask(number: usize, holder: &str, slot: Slot, ttl_s: Option<u64>, key: Option<&str>) -> CalendarCommand {
    CalendarCommand::Hold {
        id: hold(number),
        holder: sample::text(holder),
        slot,
        ttl: ttl_s.map(Duration::from_secs),
        key: key.map(sample::text),
        token: token(number),
    }
}

fn confirm(number: usize, shown: usize, made: usize) -> CalendarCommand {
    CalendarCommand::Confirm {
        hold: hold(number),
        token: token(shown),
        booking: booking(made),
        full: false,
        note: None,
    }
}

fn release(number: usize, shown: Option<usize>, asker: Asker) -> CalendarCommand {
    CalendarCommand::Release { hold: hold(number), token: shown.map(token), asker }
}

/// A diary in which Zelda holds 10:00 to 11:00 for a minute, under a key.
fn held() -> Diary {
    let mut diary = Diary::default();
    diary.tell(ask(1, "zelda", slot(TEN.0, TEN.1), Some(60), Some("try-1")), at("08:00:00")).unwrap();
    diary
}

fn given(reply: CalendarReply) -> HeldSlot {
    match reply {
        CalendarReply::Hold(held) => held,
        other => panic!("{other:?}"),
    }
}

fn code(told: Result<CalendarReply, Refusal>) -> Code {
    told.unwrap_err().code
}

/// So long after 08:00, on both clocks.
fn after(span: Duration) -> Now {
    let now = at("08:00:00");
    Now { wall: now.wall.checked_add(span).unwrap(), run: now.run + span }
}

#[test]
fn a_hold_lasts_ten_minutes_by_default_and_thirty_at_most() {
    let mut diary = Diary::default();
    let now = at("08:00:00");
    let by_default = given(diary.tell(ask(1, "zelda", slot(TEN.0, TEN.1), None, None), now).unwrap());
    assert_eq!(
        (by_default.deadline, by_default.hold.ttl),
        (now.run + Duration::from_secs(600), Duration::from_secs(600))
    );
    let longest = given(diary.tell(ask(2, "zelda", slot("11:00:00", "12:00:00"), Some(1_800), None), now).unwrap());
    assert_eq!(longest.deadline, now.run + Duration::from_secs(1_800));
    let mut longer = ask(3, "zelda", slot("12:00:00", "13:00:00"), None, None);
    if let CalendarCommand::Hold { ttl, .. } = &mut longer {
        *ttl = Some(Duration::from_millis(1_800_001));
    }
    let refusal = diary.tell(longer, now).unwrap_err();
    assert_eq!((refusal.code, &refusal.details.unwrap()["field"]), (Code::BadRequest, &"ttlMs".into()));
}

#[test]
fn every_loser_of_a_slot_hears_the_same_whoever_has_won_and_by_what() {
    let contested = || slot("10:30:00", "11:30:00");
    let mut losers = Vec::new();
    for (number, winner) in ["quentin", "gw:gateway:zelda", "zelda"].into_iter().enumerate() {
        for theirs in [contested(), slot(TEN.0, TEN.1), slot("11:29:59", "12:00:00"), slot("09:00:00", "13:00:00")] {
            for (paid, key) in [(false, None), (false, Some("try-1")), (true, None)] {
                let mut diary = Diary::default();
                let won = match paid {
                    true => book(1, winner, theirs),
                    false => ask(1, winner, theirs, Some(60 + number as u64), key),
                };
                diary.tell(won, at("08:00:00")).unwrap();
                losers.push(diary.tell(ask(2, "zelda", contested(), None, Some("try-2")), at("08:00:01")).unwrap_err());
            }
        }
    }
    assert_eq!((losers[0].code, &losers[0].details), (Code::HoldConflict, &None));
    losers.iter().for_each(|loser| assert_eq!(*loser, losers[0]));
}

#[test]
fn a_hold_ends_exactly_at_its_deadline() {
    let ttl = Duration::from_secs(60);
    for before in [Duration::from_nanos(1), Duration::from_micros(1), Duration::from_secs(1)] {
        let mut diary = held();
        diary.tell(confirm(1, 1, 1), after(ttl - before)).unwrap();
        let refusal = held().tell(ask(2, "quentin", slot(TEN.0, TEN.1), None, None), after(ttl - before));
        assert_eq!(code(refusal), Code::HoldConflict);
    }
    let mut diary = held();
    assert_eq!(diary.calendar.next_deadline(), Some(after(ttl).run));
    assert_eq!(code(diary.tell(confirm(1, 1, 1), after(ttl))), Code::HoldExpired);
    assert_eq!(diary.calendar.hold(&hold(1)).unwrap().hold.status, HoldStatus::Expired);
}

#[test]
fn an_expired_hold_never_blocks() {
    let ttl = Duration::from_secs(60);
    held().tell(ask(2, "quentin", slot(TEN.0, TEN.1), None, None), after(ttl)).unwrap();
    held().tell(book(1, "quentin", slot("10:30:00", "11:30:00")), after(ttl)).unwrap();
    held().tell(ask(2, "zelda", slot("12:00:00", "13:00:00"), None, Some("try-1")), after(ttl)).unwrap();
    let mut diary = held();
    diary.tell(book(1, "quentin", slot("12:00:00", "13:00:00")), at("08:00:00")).unwrap();
    let to = berth::model::Rebooking { starts_at: Some(slot(TEN.0, TEN.1).starts_at), length: None };
    diary.tell(CalendarCommand::Reschedule { booking: booking(1), to, asker: agent("quentin") }, after(ttl)).unwrap();
}

#[test]
fn the_wall_clock_ends_no_hold() {
    let mut diary = held();
    let tomorrow = Now { run: at("08:00:00").run, ..at("09:59:59") };
    assert!(diary.calendar.expired(tomorrow).is_empty());
    let again = &diary.calendar.rewritten(tomorrow)[0];
    let berth::admission::calendar::CalendarChange::Hold { expires_at, deadline, .. } = again else {
        panic!("{again:?}");
    };
    assert_eq!((*expires_at, *deadline), (at("10:00:59").wall, at("08:01:00").run));
    diary.tell(confirm(1, 1, 1), tomorrow).unwrap();
}

#[test]
fn confirming_makes_a_booking_of_the_holds_holder_in_one_step() {
    let mut diary = held();
    let (changes, reply) = diary.take(confirm(1, 1, 1), at("08:00:30")).unwrap();
    assert_eq!(changes.len(), 2);
    let CalendarReply::Booking(made) = reply else { panic!("{reply:?}") };
    assert_eq!((made.holder.to_string(), made.status), ("zelda".to_owned(), BookingStatus::Scheduled));
    assert_eq!(made.window, diary.calendar.hold(&hold(1)).unwrap().hold.window);
    assert_eq!(diary.calendar.next_deadline(), None);
}

#[test]
fn confirming_twice_with_the_same_token_answers_the_same_booking() {
    let mut diary = held();
    let once = diary.tell(confirm(1, 1, 1), at("08:00:30")).unwrap();
    let (changes, twice) = diary.take(confirm(1, 1, 2), at("09:00:00")).unwrap();
    assert_eq!((once, changes), (twice, vec![]));
    assert_eq!(code(diary.tell(confirm(1, 2, 2), at("09:00:00"))), Code::InsufficientPermissions);
}

#[test]
fn a_wrong_token_confirms_and_releases_nothing_and_tells_nothing() {
    let mut diary = held();
    let before = diary.calendar.clone();
    let now = at("08:00:01");
    for wrong in [confirm(1, 2, 1), release(1, Some(2), agent("zelda")), release(1, None, agent("zelda"))] {
        assert_eq!(code(diary.tell(wrong, now)), Code::InsufficientPermissions);
    }
    assert_eq!(code(diary.tell(release(1, Some(2), admin()), now)), Code::InsufficientPermissions);
    assert_eq!(code(diary.tell(confirm(9, 1, 1), now)), Code::UnknownHold);
    assert_eq!(diary.calendar, before);
    // After its end the wrong token still hears no more than that it is wrong.
    assert_eq!(code(diary.tell(confirm(1, 2, 1), at("09:00:00"))), Code::InsufficientPermissions);
}

#[test]
fn the_slot_of_a_hold_must_not_have_ended() {
    let mut diary = Diary::default();
    diary.tell(ask(1, "zelda", slot("08:00:00", "08:05:00"), None, None), at("08:00:00")).unwrap();
    diary.tell(ask(2, "zelda", slot("08:05:00", "08:10:00"), None, None), at("08:00:00")).unwrap();
    assert_eq!(code(diary.tell(confirm(1, 1, 1), at("08:05:00"))), Code::BadRequest);
    diary.tell(confirm(2, 2, 2), at("08:09:59")).unwrap();
}

#[test]
fn a_hold_is_released_by_whoever_has_the_token_or_an_admin_and_its_slot_is_free() {
    for by in [release(1, Some(1), agent("quentin")), release(1, None, admin())] {
        let mut diary = held();
        let gone = given(diary.tell(by.clone(), at("08:00:01")).unwrap());
        assert_eq!(gone.hold.status, HoldStatus::Released);
        assert_eq!(diary.take(by, at("08:00:02")).unwrap().0, [], "twice is once");
        diary.tell(book(1, "quentin", slot(TEN.0, TEN.1)), at("08:00:02")).unwrap();
        assert_eq!(code(diary.tell(confirm(1, 1, 2), at("08:00:03"))), Code::HoldExpired);
    }
}

#[test]
fn the_same_key_and_slot_again_get_the_same_hold_and_another_token() {
    let mut diary = held();
    let first = diary.calendar.hold(&hold(1)).unwrap().clone();
    let again = given(diary.tell(ask(2, "zelda", slot(TEN.0, TEN.1), None, Some("try-1")), at("08:00:30")).unwrap());
    assert_eq!((&again.hold.id, again.deadline), (&hold(1), first.deadline), "its time goes on");
    assert_eq!(
        code(diary.tell(confirm(1, 1, 1), at("08:00:30"))),
        Code::InsufficientPermissions,
        "the old one is dead"
    );
    diary.tell(confirm(1, 2, 1), at("08:00:30")).unwrap();
}

#[test]
fn a_key_stands_for_one_slot_of_one_requester() {
    let mut diary = held();
    let now = at("08:00:01");
    let other = ask(2, "zelda", slot(TEN.0, "11:00:01"), None, Some("try-1"));
    assert_eq!(code(diary.tell(other, now)), Code::IdempotencyConflict);
    let foreign = ask(2, "quentin", slot(TEN.0, TEN.1), None, Some("try-1"));
    assert_eq!(code(diary.tell(foreign, now)), Code::HoldConflict);
    let sub = ask(2, "zelda/night-shift", slot(TEN.0, TEN.1), None, Some("try-1"));
    assert_eq!(code(diary.tell(sub, now)), Code::HoldConflict);
}

#[test]
fn while_holds_are_paused_those_there_are_can_be_confirmed_released_and_reissued() {
    let pauses: [fn(&mut Diary); 3] = [
        |diary| diary.node_paused = true,
        |diary| diary.rules.holds_enabled = false,
        |diary| drop(diary.tell(CalendarCommand::PauseHolds(true), at("08:00:00")).unwrap()),
    ];
    for pause in pauses {
        let mut diary = held();
        diary.tell(ask(2, "zelda", slot("12:00:00", "13:00:00"), None, None), at("08:00:00")).unwrap();
        pause(&mut diary);
        let refusal = diary.tell(ask(3, "quentin", slot("14:00:00", "15:00:00"), None, None), at("08:00:01"));
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after.is_some()), (Code::HoldsPaused, true));
        let taken = diary.tell(ask(3, "quentin", slot(TEN.0, TEN.1), None, None), at("08:00:01")).unwrap_err();
        assert_eq!(taken, refusal, "whether a slot is free is not told meanwhile");
        diary.tell(ask(4, "zelda", slot(TEN.0, TEN.1), None, Some("try-1")), at("08:00:01")).unwrap();
        diary.tell(confirm(1, 4, 1), at("08:00:02")).unwrap();
        diary.tell(release(2, Some(2), agent("zelda")), at("08:00:02")).unwrap();
        diary.tell(book(3, "quentin", slot("14:00:00", "15:00:00")), at("08:00:02")).unwrap();
    }
}

#[test]
fn no_event_says_anything_of_a_token() {
    let mut diary = Diary::default();
    let mut events = Vec::new();
    let steps = [
        ask(1, "zelda", slot(TEN.0, TEN.1), Some(60), Some("try-1")),
        ask(2, "zelda", slot(TEN.0, TEN.1), None, Some("try-1")),
        confirm(1, 2, 1),
        ask(3, "zelda", slot("12:00:00", "13:00:00"), None, None),
        release(3, Some(3), agent("zelda")),
    ];
    for step in steps {
        let (changes, _) = diary.take(step, at("08:00:00")).unwrap();
        let changes = changes.into_iter().map(Change::Calendar);
        events.extend(changes.filter_map(|it| event_of(&it, Some(&diary.resource), at("08:00:00"))));
    }
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["hold.created", "hold.confirmed", "booking.created", "hold.created", "hold.released"]);
    for (event, number) in events.iter().flat_map(|event| [1, 2, 3].map(|number| (event, number))) {
        let (words, hash) = (serde_json::to_string(&event.payload).unwrap(), token(number));
        assert!(!words.contains("token"), "{words}");
        let hex: String = hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!words.contains(&hex), "{words}");
    }
    assert_eq!(format!("{:?}", token(1)), "TokenHash(…)");
}

#[test]
fn only_what_is_over_is_forgotten() {
    let mut diary = held();
    diary.tell(book(1, "zelda", slot("12:00:00", "13:00:00")), at("08:00:00")).unwrap();
    let forget = || CalendarCommand::Forget { bookings: vec![booking(1)], holds: vec![hold(1)] };
    assert_eq!(diary.take(forget(), at("08:00:59")).unwrap().0, []);
    diary.tell(forget(), at("12:00:00")).unwrap();
    assert_eq!((diary.calendar.holds().count(), diary.calendar.bookings().count()), (0, 1));
    diary.tell(forget(), Now { run: RunTime(Duration::from_secs(1)), ..at("13:00:00") }).unwrap();
    assert!(diary.calendar.is_empty());
}
