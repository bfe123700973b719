//! Bookings and holds through the gateway: what reaches the worker, and what comes back. The worker is a pretended one.

use std::sync::Arc;
use std::time::Duration;

use berth::model::{
    Booking, BookingId, BookingStatus, Caller, Code, Cursor, Fence, Fingerprint, HoldId, HoldStatus, LeaseId,
    LeaseRecord, Mode, Refusal, RequestId, Role, SeriesId, Target, TokenHash, Window,
};
use berth::service::ask::Headers;
use berth::service::calendar::ask::{BookBody, BookingQuery, ConfirmBody, HoldBody};
use berth::service::calendar::views::Booked;
use berth::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall, HoldSeen};
use berth::wire::report::LeaseRow;
use jiff::Timestamp;

use crate::lab::{Lab, eventually};
use crate::pretender::{Pretender, Script};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn booking(holder: &str, start: i64) -> Arc<Booking> {
    Arc::new(Booking {
        id: BookingId::generate(),
        resource_id: "pixel".parse().unwrap(),
        holder: holder.parse().unwrap(),
        window: Window::new(at(start), at(start + 60)).unwrap(),
        status: BookingStatus::Scheduled,
        claims: true,
        note: Some("mine".parse().unwrap()),
        lease_id: None,
        series: None,
        created_at: at(0),
        settled_at: None,
    })
}

fn body(note: Option<&str>) -> BookBody {
    BookBody {
        starts_at: at(600),
        duration_ms: Some(60_000),
        ends_at: None,
        repeat: None,
        note: note.map(|note| note.parse().unwrap()),
        requester: Some("job-1".parse().unwrap()),
    }
}

fn hold_body() -> HoldBody {
    HoldBody {
        starts_at: at(600),
        duration_ms: Some(60_000),
        ends_at: None,
        ttl_ms: None,
        requester: None,
        idempotency_key: None,
    }
}

fn agent(name: &str) -> Caller {
    Caller { principal: name.parse().unwrap(), role: Role::Agent }
}

/// A lab whose first worker is a pretended one.
async fn pretended() -> (Lab, Pretender, Script) {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let script = Script::default();
    let rack = Pretender::join(&lab, "rack-1", "pixel", &script, Vec::new()).await;
    reached(&lab, &script).await;
    (lab, rack, script)
}

/// Waits until the pretended worker can be asked; what that asks is not kept.
async fn reached(lab: &Lab, script: &Script) {
    let gateway = lab.gateway();
    eventually("the pretended worker can be asked", || async {
        script.answers(CalendarAnswer::Holds(Vec::new()));
        let asked = gateway.holds(&Caller::admin(), "rack-1/pixel".parse().unwrap()).await.is_ok();
        script.forget();
        asked.then_some(())
    })
    .await;
}

fn last(script: &Script) -> CalendarCall {
    script.asked().pop().expect("something was asked")
}

#[tokio::test(start_paused = true)]
async fn a_booking_goes_to_its_worker_and_comes_back_in_the_gateways_names() {
    let (lab, _rack, script) = pretended().await;
    let (gateway, ci) = (lab.gateway(), agent("ci"));
    for address in ["pixel", "rack-1/pixel"] {
        let made = booking("gw:gateway:ci/job-1", 600);
        script.answers(CalendarAnswer::Booked { series: None, bookings: vec![made.clone()] });
        let booked = gateway.book(&ci, address.parse().unwrap(), body(Some("mine")), Headers::default()).await;
        let Booked::One { booking: seen } = booked.unwrap() else { panic!("one was booked") };
        assert_eq!(seen.id.to_string(), format!("rack-1.{}", made.id));
        assert_eq!(seen.holder_id.unwrap().to_string(), "ci/job-1", "this gateway's own are bare");
        let CalendarCall { asker, ask } = last(&script);
        assert_eq!((asker.requester.to_string().as_str(), asker.role), ("gw:gateway:ci/job-1", Role::Agent));
        assert!(matches!(ask, CalendarAsk::Book { resource, .. } if resource.as_str() == "pixel"));

        script.answers(CalendarAnswer::Booking(made.clone()));
        gateway.booking(&ci, seen.id).await.unwrap();
        assert!(matches!(last(&script).ask, CalendarAsk::Booking(id) if id == made.id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_workers_own_client_of_the_same_name_is_another() {
    let (lab, _rack, script) = pretended().await;
    for (caller, shown) in [(agent("ci"), None), (Caller::admin(), Some("ci"))] {
        let local = booking("ci", 600);
        script.answers(CalendarAnswer::Booking(local.clone()));
        let id = local.id.through(&"rack-1".parse().unwrap()).unwrap();
        let seen = lab.gateway().booking(&caller, id).await.unwrap().booking;
        assert_eq!(seen.holder_id.map(|holder| holder.to_string()).as_deref(), shown);
        assert_eq!(seen.note.is_some(), shown.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_worker_has_is_unknown_and_one_that_is_away_is_unreachable() {
    let (mut lab, rack, script) = pretended().await;
    let (gateway, ci) = (lab.gateway(), agent("ci"));
    let code = |result: Result<_, Refusal>| result.map(|_: Booked| ()).unwrap_err().code;
    let book = |address: &str| gateway.book(&ci, address.parse().unwrap(), body(None), Headers::default());
    assert_eq!(code(book("nothing").await), Code::UnknownResource);
    assert_eq!(code(book("rack-2/pixel").await), Code::UnknownResource);
    assert_eq!(code(book("rack-9/pixel").await), Code::UnknownResource);
    for id in [BookingId::generate(), BookingId::generate().through(&"rack-9".parse().unwrap()).unwrap()] {
        assert_eq!(gateway.booking(&ci, id).await.unwrap_err().code, Code::UnknownBooking);
    }
    let bare = HoldId::generate();
    assert_eq!(gateway.one_hold(&ci, bare.clone()).await.unwrap_err().code, Code::UnknownHold);
    assert!(script.asked().is_empty(), "no worker was asked");

    drop(rack);
    eventually("its link is down", || async { (code(book("pixel").await) == Code::WorkerUnreachable).then_some(()) })
        .await;
    let there = bare.through(&"rack-1".parse().unwrap()).unwrap();
    assert_eq!(gateway.one_hold(&ci, there).await.unwrap_err().code, Code::WorkerUnreachable);
    // Another worker with a resource of that name makes the bare name mean two.
    let other = Script::default();
    lab.stop("rack-2").await;
    let _second = Pretender::join(&lab, "rack-2", "pixel", &other, Vec::new()).await;
    let ambiguous = eventually("two have it", || async {
        book("pixel").await.err().filter(|refusal| refusal.code == Code::AmbiguousResource)
    })
    .await;
    assert_eq!(ambiguous.details.unwrap()["resourceIds"], serde_json::json!(["rack-1/pixel", "rack-2/pixel"]));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_goes_down_books_nothing_more_but_lets_bookings_be_given_up() {
    let (lab, _rack, script) = pretended().await;
    let (gateway, ci, made) = (lab.gateway(), agent("ci"), booking("gw:gateway:ci", 600));
    lab.refuse_requests("gateway");
    let booked = gateway.book(&ci, "pixel".parse().unwrap(), body(None), Headers::default()).await;
    assert_eq!(booked.unwrap_err().code, Code::Stopping);
    let held = gateway.hold(&ci, "pixel".parse().unwrap(), hold_body(), Headers::default()).await;
    assert_eq!(held.unwrap_err().code, Code::Stopping);
    assert!(script.asked().is_empty());
    script.answers(CalendarAnswer::Cancelled { booking: made.clone(), following: Vec::new() });
    gateway.cancel_booking(&ci, made.id.through(&"rack-1".parse().unwrap()).unwrap(), false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_booking_has_the_name_that_the_list_of_leases_gives_it() {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let (script, bare, own) = (Script::default(), RequestId::generate(), LeaseId::generate());
    let chosen = lease("mine", &bare, true);
    let _rack = Pretender::join(&lab, "rack-1", "pixel", &script, vec![chosen]).await;
    reached(&lab, &script).await;
    for (at_worker, at_gateway) in [
        ("mine".parse().unwrap(), "mine".to_owned()),
        (own.clone(), format!("rack-1.{own}")),
        ("over".parse().unwrap(), "rack-1.over".to_owned()),
    ] {
        let mut made = booking("gw:gateway:ci", 600);
        Arc::make_mut(&mut made).lease_id = Some(at_worker);
        script.answers(CalendarAnswer::Booking(made.clone()));
        let seen =
            lab.gateway().booking(&agent("ci"), made.id.through(&"rack-1".parse().unwrap()).unwrap()).await.unwrap();
        assert_eq!(seen.booking.lease_id.unwrap().to_string(), at_gateway);
    }
    assert_eq!(lab.leases().await[0].id.as_str(), "mine");
}

fn lease(id: &str, request: &RequestId, chosen: bool) -> LeaseRow {
    let target = Target::Resource("pixel".parse().unwrap());
    let record = LeaseRecord {
        id: id.parse().unwrap(),
        request_id: request.clone(),
        resource_id: "pixel".parse().unwrap(),
        mode: Mode::Exclusive,
        holder: "gw:gateway:ci".parse().unwrap(),
        granted_at: at(0),
        renewed_at: at(0),
        ttl: Duration::from_secs(60),
        fence: Fence(1),
        note: None,
        id_chosen_by_requester: chosen,
        idempotency_key: None,
        fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
        asked_ttl: None,
    };
    LeaseRow::new(&record, Duration::from_secs(3600))
}

#[tokio::test(start_paused = true)]
async fn a_conflict_names_the_booking_as_the_gateway_does() {
    let (lab, _rack, script) = pretended().await;
    let id = BookingId::generate();
    let refusal = Refusal::new(Code::BookingConflict, format!("booking {id} has it")).with("bookingId", id.as_str());
    script.refuses(refusal);
    let booked = lab.gateway().book(&agent("ci"), "pixel".parse().unwrap(), body(None), Headers::default()).await;
    let refusal = booked.unwrap_err();
    assert_eq!(refusal.details.unwrap()["bookingId"], format!("rack-1.{id}"));
    assert_eq!(refusal.message, format!("booking rack-1.{id} has it"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_a_name_of_another_worker_harms_nobody_but_its_own_caller() {
    let (lab, _rack, script) = pretended().await;
    let (gateway, ci, x) = (lab.gateway(), agent("ci"), "x".parse().unwrap());
    let made = booking("gw:gateway:ci", 600);
    let with = |change: &dyn Fn(&mut Booking)| {
        let mut wrong = made.clone();
        change(Arc::make_mut(&mut wrong));
        wrong
    };
    let id = with(&|it| it.id = it.id.through(&x).unwrap());
    let series = with(&|it| it.series = SeriesId::generate().through(&x));
    let hold = |id, booking| HoldSeen {
        id,
        resource_id: "pixel".parse().unwrap(),
        holder: "gw:gateway:ci".parse().unwrap(),
        window: made.window,
        status: HoldStatus::Active,
        expires_at: at(1200),
        booking,
    };
    let own = HoldId::generate();
    let next = |next| CalendarAnswer::Bookings { bookings: vec![made.clone()], next: Some(next) };
    let answers = [
        CalendarAnswer::Booking(id.clone()),
        CalendarAnswer::Booking(series.clone()),
        CalendarAnswer::Booked { series: SeriesId::generate().through(&x), bookings: vec![made.clone()] },
        CalendarAnswer::Booked { series: None, bookings: vec![id.clone()] },
        CalendarAnswer::Cancelled { booking: made.clone(), following: vec![series] },
        CalendarAnswer::Hold(hold(own.through(&x).unwrap(), None)),
        CalendarAnswer::Holds(vec![hold(own.clone(), made.id.through(&x))]),
        next(Cursor::behind(&id)),
    ];
    for answer in answers {
        script.answers(answer);
        let refused = gateway.one_hold(&ci, own.through(&"rack-1".parse().unwrap()).unwrap()).await.unwrap_err();
        assert_eq!(refused.code, Code::Internal);
        assert!(refused.message.starts_with("the worker's answer does not fit"), "{refused}");
    }
    script.answers(CalendarAnswer::Booking(made.clone()));
    gateway.booking(&ci, made.id.through(&"rack-1".parse().unwrap()).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_made_by_the_hash_of_its_token_and_confirmed_by_it() {
    let (lab, _rack, script) = pretended().await;
    let (gateway, ci) = (lab.gateway(), agent("ci"));
    let (id, made) = (HoldId::generate(), booking("gw:gateway:ci", 600));
    let hold = |status, booking| HoldSeen {
        id: id.clone(),
        resource_id: "pixel".parse().unwrap(),
        holder: "gw:gateway:ci".parse().unwrap(),
        window: made.window,
        status,
        expires_at: at(1200),
        booking,
    };
    script.answers(CalendarAnswer::Hold(hold(HoldStatus::Active, None)));
    let held = gateway.hold(&ci, "pixel".parse().unwrap(), hold_body(), Headers::default()).await.unwrap();
    assert_eq!(held.hold.id.to_string(), format!("rack-1.{id}"));
    assert_eq!(held.hold.holder_id.unwrap().to_string(), "ci");
    let CalendarAsk::Hold { token, .. } = last(&script).ask else { panic!("no hold was asked for") };
    assert_eq!(token, TokenHash::of(held.token.expose()));

    script.answers(CalendarAnswer::Booking(made.clone()));
    let confirm = ConfirmBody { token: held.token.clone(), note: None };
    let booked = gateway.confirm(&ci, held.hold.id.clone(), confirm).await.unwrap().booking;
    assert_eq!(booked.id.to_string(), format!("rack-1.{}", made.id));
    let CalendarAsk::Confirm { hold: asked, token: shown, .. } = last(&script).ask else { panic!("not confirmed") };
    assert_eq!((asked, shown), (id.clone(), token));

    script.answers(CalendarAnswer::Hold(hold(HoldStatus::Confirmed, Some(made.id.clone()))));
    let seen = gateway.one_hold(&ci, held.hold.id).await.unwrap().hold;
    assert_eq!(seen.booking_id, Some(booked.id));
}

#[tokio::test(start_paused = true)]
async fn the_bookings_of_all_workers_are_one_list_that_is_read_page_by_page() {
    let (mut lab, _rack, one) = pretended().await;
    let two = Script::default();
    lab.stop("rack-2").await;
    let _second = Pretender::join(&lab, "rack-2", "board", &two, Vec::new()).await;
    let (gateway, ci) = (lab.gateway(), agent("ci"));
    eventually("the second can be asked", || async {
        two.answers(CalendarAnswer::Holds(Vec::new()));
        let asked = gateway.holds(&ci, "rack-2/board".parse().unwrap()).await.is_ok();
        two.forget();
        asked.then_some(())
    })
    .await;
    let (early, late) = (booking("gw:gateway:ci", 60), booking("gw:gateway:ci", 180));
    let middle = booking("gw:gateway:ci", 120);
    one.answers(CalendarAnswer::Bookings { bookings: vec![early.clone(), late.clone()], next: None });
    two.answers(CalendarAnswer::Bookings { bookings: vec![middle.clone()], next: None });
    let query = |after| BookingQuery { limit: Some(2), after, ..BookingQuery::default() };
    let page = gateway.bookings(&ci, None, query(None)).await.unwrap();
    let ids: Vec<String> = page.bookings.iter().map(|booking| booking.id.to_string()).collect();
    assert_eq!(ids, [format!("rack-1.{}", early.id), format!("rack-2.{}", middle.id)]);
    let CalendarAsk::Bookings { filter, .. } = last(&one).ask else { panic!("no list was asked for") };
    assert_eq!(filter.owner.unwrap().to_string(), "gw:gateway:ci", "an agent's list is its own");

    let next = page.next.unwrap();
    assert_eq!(next, Cursor::new(at(120), middle.id.through(&"rack-2".parse().unwrap()).unwrap()));
    one.answers(CalendarAnswer::Bookings { bookings: vec![late.clone()], next: None });
    two.answers(CalendarAnswer::Bookings { bookings: Vec::new(), next: None });
    let rest = gateway.bookings(&ci, None, query(Some(next))).await.unwrap();
    assert_eq!((rest.bookings.len(), rest.next), (1, None));
    let after = |script: &Script| match last(script).ask {
        CalendarAsk::Bookings { filter, .. } => filter.after.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(&two), Cursor::new(at(120), middle.id.clone()), "its own name, without the worker's");
    assert_eq!(after(&one).starts_at(), at(120));
    assert!(after(&one) < Cursor::behind(&late));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_all_names_the_workers_whose_bookings_it_does_not_have() {
    let (mut lab, _rack, script) = pretended().await;
    let (gateway, ci, made) = (lab.gateway(), agent("ci"), booking("gw:gateway:ci", 60));
    let list = || async {
        script.forget();
        script.answers(CalendarAnswer::Bookings { bookings: vec![made.clone()], next: None });
        gateway.bookings(&ci, None, BookingQuery::default()).await
    };
    let shape = serde_json::to_value(list().await.unwrap()).unwrap();
    assert_eq!(shape.get("unreachable"), None, "every worker is here");
    lab.stop("rack-2").await;
    let page =
        eventually("one is away", || async { list().await.ok().filter(|page| !page.unreachable.is_empty()) }).await;
    assert_eq!(page.bookings.len(), 1);
    assert_eq!(serde_json::to_value(page).unwrap()["unreachable"], serde_json::json!(["rack-2"]));
    // One that is here and does not answer is another thing.
    script.forget();
    let refused = gateway.bookings(&ci, None, BookingQuery::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::WorkerUnreachable);
}

/// What a worker was told of new holds.
fn told(script: &Script) -> Vec<bool> {
    let pauses = script.asked().into_iter().filter_map(|call| match call.ask {
        CalendarAsk::PauseHolds { resource: None, paused } => {
            assert_eq!(call.asker.requester.to_string(), "gw:gateway:admin", "in the gateway's own name");
            Some(paused)
        }
        _ => None,
    });
    pauses.collect()
}

#[tokio::test(start_paused = true)]
async fn a_pause_reaches_the_workers_that_are_here_and_those_that_come_back_and_outlives_the_gateway() {
    let (mut lab, rack, script) = pretended().await;
    assert!(told(&script).is_empty(), "a gateway that was never told says nothing");
    let admin = Caller::admin();
    let (gateway, wait) = (lab.gateway(), Duration::from_secs(2));
    assert!(gateway.pause_holds(&admin, None, true).await.unwrap().paused);
    eventually("it is told", || async { (told(&script) == [true]).then_some(()) }).await;
    tokio::time::sleep(wait).await;
    assert_eq!(told(&script), [true], "once");

    // One that was away while it ended hears of the end when it is back.
    drop(rack);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!gateway.pause_holds(&admin, None, false).await.unwrap().paused);
    let rack = Pretender::join(&lab, "rack-1", "pixel", &script, Vec::new()).await;
    eventually("it is told on its return", || async { (told(&script) == [true, false]).then_some(()) }).await;

    gateway.pause_holds(&admin, None, true).await.unwrap();
    eventually("it is told again", || async { (told(&script) == [true, false, true]).then_some(()) }).await;
    drop(gateway);
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    let all = [true, false, true, true];
    eventually("the next life of the gateway says it too", || async { (told(&script) == all).then_some(()) }).await;
    drop(rack);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_refuses_a_pause_is_told_again_with_patience_and_anew_when_an_admin_says_it_anew() {
    let (lab, _rack, script) = pretended().await;
    let (gateway, admin) = (lab.gateway(), Caller::admin());
    script.refuses(Refusal::internal("it cannot be stored"));
    script.answers(CalendarAnswer::Holds(Vec::new()));
    script.refuses(Refusal::internal("it cannot be stored"));
    gateway.pause_holds(&admin, None, true).await.unwrap();
    eventually("it is told", || async { (told(&script) == [true]).then_some(()) }).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(told(&script), [true], "not at once");
    eventually("it is told until it follows", || async { (told(&script) == [true; 4]).then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(told(&script), [true; 4], "and then no more");

    gateway.pause_holds(&admin, None, true).await.unwrap();
    eventually("an admin has said it anew", || async { (told(&script) == [true; 5]).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_resource_goes_to_its_worker_as_whoever_asks_for_it() {
    let (lab, _rack, script) = pretended().await;
    let paused = lab.gateway().pause_holds(&Caller::admin(), Some("pixel".parse().unwrap()), true).await.unwrap();
    assert!(paused.paused);
    let CalendarCall { asker, ask } = last(&script);
    assert_eq!((asker.requester.to_string().as_str(), asker.role), ("gw:gateway:admin", Role::Admin));
    assert!(matches!(ask, CalendarAsk::PauseHolds { resource: Some(id), paused: true } if id.as_str() == "pixel"));
    assert_eq!(lab.gateway().doctor(&Caller::admin()).await.unwrap_err().code, Code::UnsupportedOnGateway);
}
