//! Bookings and holds through the gateway, all the way to the desk of a real worker and back.

use std::time::Duration;

use berth::admission::LeaseRules;
use berth::clock::Clock;
use berth::model::time::later;
use berth::model::{BookingId, BookingStatus, Caller, Code, HoldId, HoldStatus, RenewAsk, Role};
use berth::service::ask::{AcquireBody, Headers};
use berth::service::calendar::ask::{BookBody, BookingQuery, ConfirmBody, HoldBody, RescheduleBody};
use berth::service::calendar::views::{Booked, BookingView, HoldCreated};

use crate::lab::{Lab, active, eventually};

const MINUTE: Duration = Duration::from_secs(60);

fn agent(name: &str) -> Caller {
    Caller { principal: name.parse().unwrap(), role: Role::Agent }
}

/// A minute that starts so many minutes from now.
fn minute(clock: &Clock, ahead: u32) -> BookBody {
    BookBody {
        starts_at: later(clock.now().wall, MINUTE * ahead),
        duration_ms: Some(60_000),
        ends_at: None,
        repeat: None,
        note: Some("nightly".parse().unwrap()),
        requester: None,
    }
}

async fn book(lab: &Lab, caller: &Caller, body: BookBody) -> Result<BookingView, Code> {
    let booked = lab.gateway().book(caller, "pixel".parse().unwrap(), body, Headers::default()).await;
    match booked.map_err(|refusal| refusal.code)? {
        Booked::One { booking } => Ok(booking),
        Booked::Series { .. } => panic!("one was asked for"),
    }
}

async fn hold(lab: &Lab, caller: &Caller, body: &BookBody) -> Result<HoldCreated, Code> {
    let body = HoldBody {
        starts_at: body.starts_at,
        duration_ms: body.duration_ms,
        ends_at: None,
        ttl_ms: None,
        requester: None,
        idempotency_key: None,
    };
    let held = lab.gateway().hold(caller, "pixel".parse().unwrap(), body, Headers::default()).await;
    held.map_err(|refusal| refusal.code)
}

#[tokio::test(start_paused = true)]
async fn a_booking_is_made_moved_listed_and_given_up_through_the_gateway() {
    let lab = Lab::start().await;
    let (gateway, ci, other) = (lab.gateway(), agent("ci"), agent("other"));
    let body = minute(&lab.clock, 10);
    let made = book(&lab, &ci, body.clone()).await.unwrap();
    assert!(made.id.as_str().starts_with("rack-1.book_"), "{}", made.id);
    assert_eq!(made.holder_id.as_ref().unwrap().to_string(), "ci");

    let refused = gateway.book(&other, "pixel".parse().unwrap(), body, Headers::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::BookingConflict);
    assert_eq!(refused.details.unwrap()["bookingId"], made.id.as_str());
    let seen = gateway.booking(&other, made.id.clone()).await.unwrap().booking;
    assert_eq!((seen.holder_id, seen.note), (None, None));
    assert_eq!(gateway.bookings(&other, None, BookingQuery::default()).await.unwrap().bookings, []);
    let listed = gateway.bookings(&ci, None, BookingQuery::default()).await.unwrap().bookings;
    assert_eq!(listed, std::slice::from_ref(&made));

    let to = RescheduleBody { duration_ms: Some(120_000), ..RescheduleBody::default() };
    let denied = gateway.reschedule(&other, made.id.clone(), to.clone()).await.unwrap_err();
    assert_eq!(denied.code, Code::InsufficientPermissions);
    let moved = gateway.reschedule(&ci, made.id.clone(), to).await.unwrap().booking;
    assert_eq!(moved.ends_at, later(made.starts_at, 2 * MINUTE));
    let given_up = gateway.cancel_booking(&ci, made.id.clone(), false).await.unwrap().booking;
    assert_eq!(given_up.status, BookingStatus::Cancelled);
    let at_worker = lab.worker("rack-1").booking(&Caller::admin(), made.id.of_worker().1).await.unwrap().booking;
    assert_eq!(at_worker.holder_id.unwrap().to_string(), "gw:gateway:ci");
}

#[tokio::test(start_paused = true)]
async fn a_hold_becomes_a_booking_for_whoever_shows_its_token_to_the_gateway() {
    let lab = Lab::start().await;
    let (gateway, ci, other) = (lab.gateway(), agent("ci"), agent("other"));
    let body = minute(&lab.clock, 10);
    let held = hold(&lab, &ci, &body).await.unwrap();
    assert!(held.hold.id.as_str().starts_with("rack-1.hold_"), "{}", held.hold.id);
    assert_eq!(hold(&lab, &other, &body).await.unwrap_err(), Code::HoldConflict);
    assert_eq!(book(&lab, &other, body.clone()).await.unwrap_err(), Code::SlotHeld);
    let hidden = gateway.one_hold(&other, held.hold.id.clone()).await.unwrap_err();
    assert_eq!(hidden.code, Code::InsufficientPermissions);

    let wrong = ConfirmBody { token: berth::trust::HoldToken::generate().unwrap(), note: None };
    let denied = gateway.confirm(&ci, held.hold.id.clone(), wrong).await.unwrap_err();
    assert_eq!(denied.code, Code::InsufficientPermissions);
    let confirm = ConfirmBody { token: held.token.clone(), note: None };
    let made = gateway.confirm(&ci, held.hold.id.clone(), confirm).await.unwrap().booking;
    assert_eq!((made.starts_at, made.holder_id.unwrap().to_string().as_str()), (body.starts_at, "ci"));
    let seen = gateway.one_hold(&ci, held.hold.id).await.unwrap().hold;
    assert_eq!((seen.status, seen.booking_id), (HoldStatus::Confirmed, Some(made.id)));
}

#[tokio::test(start_paused = true)]
async fn new_holds_stop_on_every_worker_and_on_one_that_was_away_until_they_are_resumed() {
    let mut lab = Lab::start().await;
    let (gateway, admin, ci) = (lab.gateway(), Caller::admin(), agent("ci"));
    lab.stop("rack-1").await;
    assert!(gateway.pause_holds(&admin, None, true).await.unwrap().paused);
    lab.restart("rack-1").await;
    eventually("it has heard of the pause", || async {
        (hold(&lab, &ci, &minute(&lab.clock, 10)).await == Err(Code::HoldsPaused)).then_some(())
    })
    .await;
    lab.stop("rack-1").await;
    assert!(!gateway.pause_holds(&admin, None, false).await.unwrap().paused);
    lab.restart("rack-1").await;
    eventually("it has heard that they are made again", || async {
        hold(&lab, &ci, &minute(&lab.clock, 10)).await.ok()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_does_not_resume_what_the_worker_itself_has_paused() {
    let lab = Lab::start().await;
    let (gateway, admin) = (lab.gateway(), Caller::admin());
    lab.worker("rack-1").pause_holds(&admin, None, true).await.unwrap();
    gateway.pause_holds(&admin, None, true).await.unwrap();
    gateway.pause_holds(&admin, None, false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(hold(&lab, &agent("ci"), &minute(&lab.clock, 10)).await.unwrap_err(), Code::HoldsPaused);
}

#[tokio::test(start_paused = true)]
async fn an_admins_lease_is_renewed_across_a_booked_window_also_through_the_gateway() {
    let lab = Lab::with(&[("BERTH_BOOKINGS__MODE", "enforced")]).await;
    let gateway = lab.gateway();
    book(&lab, &agent("other"), minute(&lab.clock, 10)).await.unwrap();
    let held = lab.acquire("job-1", "pixel", 20 * MINUTE).await.unwrap();
    let renewed = lab.renew(&held.id).await.unwrap();
    assert_eq!((renewed.ttl_ms, renewed.asked_ttl_ms), (held.ttl_ms, None));
    gateway.release(&Caller::admin(), &held.id, None).await.unwrap();

    let ask_of_agent = AcquireBody { ttl_ms: Some(300_000.try_into().unwrap()), ..AcquireBody::default() };
    let rules = LeaseRules::default();
    let ask_of_agent = ask_of_agent.into_ask("pixel".parse().unwrap(), &agent("ci"), Headers::default(), &rules);
    let own = active(gateway.acquire(&agent("ci"), ask_of_agent.unwrap()).await.unwrap());
    let ask = RenewAsk { ttl: Some(1_200_000.try_into().unwrap()), ..RenewAsk::default() };
    let refused = gateway.renew(&agent("ci"), &own.id, ask).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceBooked);
}

#[tokio::test(start_paused = true)]
async fn what_the_worker_does_not_know_is_unknown_in_the_gateways_names() {
    let lab = Lab::start().await;
    let rack = "rack-1".parse().unwrap();
    let (booking, hold) = (BookingId::generate().through(&rack).unwrap(), HoldId::generate().through(&rack).unwrap());
    let refused = lab.gateway().booking(&Caller::admin(), booking.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::UnknownBooking);
    assert_eq!(refused.details.unwrap()["bookingId"], booking.as_str());
    assert_eq!(lab.gateway().one_hold(&Caller::admin(), hold).await.unwrap_err().code, Code::UnknownHold);
}
