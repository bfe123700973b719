//! Who is next when a resource frees, by example.

use std::time::Duration;

use berth::admission::resource::{Change, Command, Held, Rejection, Reply};
use berth::admission::{Speaker, Waiter};
use berth::clock::Now;
use berth::model::{LeftOut, Mode};

use super::device::{Crash, Device, admitted, ask, rank, ranked, release, sharing, unattended, waiter};
use crate::sample::{at, request, text};

const GRACE: Duration = Duration::from_secs(10);

/// Ruth has it alone, and Kim waits.
fn held(kim: impl Fn(Waiter, Now) -> Waiter) -> (Device, Held) {
    let mut device = Device::new(2);
    let held = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(kim(waiter(2, "kim", at(1)), at(1)), at(1));
    (device, held)
}

/// Ruth shares it, somebody waits to have it alone, and Kim, who would share it, waits behind.
fn stopped(ahead: Waiter, kim: impl Fn(Waiter, Now) -> Waiter) -> Device {
    let mut device = Device::new(2);
    device.grant(sharing(waiter(1, "ruth", at(0))), at(0));
    device.wait(ahead, at(1));
    device.wait(sharing(kim(waiter(3, "kim", at(299_000)), at(299_000))), at(299_000));
    device
}

/// Every way in which the turn of one who waits can come: its name, and what is done when. Kim is the one.
fn ways(kim: fn(Waiter, Now) -> Waiter) -> Vec<(&'static str, Device, Command, Now)> {
    let mut ways = Vec::new();
    let (device, ruths) = held(kim);
    let by_owner = berth::model::Caller { principal: text("ruth"), role: berth::model::Role::Agent };
    let authority = berth::model::Authority::Client(by_owner);
    let command = Command::Release { lease: ruths.lease.id.clone(), fence: Some(ruths.lease.fence), authority };
    ways.push(("release by its owner", device, command, at(2)));

    let (device, ruths) = held(kim);
    ways.push(("release by an admin", device, release(&ruths), at(2)));

    let mut device = Device::new(1);
    device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(kim(waiter(2, "kim", at(599_000)), at(599_000)), at(599_000));
    ways.push(("expiry", device, Command::Wake, at(600_000)));

    let (device, _) = held(kim);
    let renew = Command::Renew {
        lease: text("lse_1"),
        fence: None,
        ttl: None,
        allow_shorter: false,
        authority: berth::model::Authority::Client(berth::model::Caller::admin()),
    };
    let (mut device, late) = (device, at(600_000));
    device.rules.waiter_ttl = Duration::from_secs(3600);
    ways.push(("expiry, found by whoever comes", device, renew, late));

    let device = stopped(waiter(2, "omar", at(1)), kim);
    let command = Command::Withdraw { request: request(2), why: Rejection::Cancelled };
    ways.push(("cancel of the one ahead", device, command, at(299_001)));

    let device = stopped(unattended(waiter(2, "omar", at(1)), at(1)), kim);
    ways.push(("pruning of the one ahead", device, Command::Wake, at(300_001)));

    let device = stopped(unattended(waiter(2, "omar", at(1)), at(1)), kim);
    ways.push(("leaving of the one ahead", device, Command::Leave { holder: text("omar") }, at(299_001)));

    let device = stopped(unattended(waiter(2, "omar", at(1)), at(1)), kim);
    let command = ask(ranked(unattended(waiter(4, "omar", at(299_001)), at(299_001)), -1));
    ways.push(("another priority of the one ahead", device, command, at(299_001)));

    let device = stopped(unattended(waiter(2, "omar", at(1)), at(1)), kim);
    let mut again = unattended(waiter(4, "omar", at(299_001)), at(299_001));
    (again.proposal.lease, again.proposal.id_chosen_by_requester) = (text("mine"), true);
    ways.push(("the one ahead joining anew", device, ask(again), at(299_001)));

    let mut device = Device::new(1);
    device.take(Command::Drain(true), at(0));
    device.wait(kim(waiter(1, "kim", at(1)), at(1)), at(1));
    ways.push(("undrain", device, Command::Drain(false), at(2)));

    ways.push(("end of a grace", kept(kim), Command::Wake, at(2 + 10_000)));
    ways.push(("leaving of the one it is kept for", kept(kim), Command::Leave { holder: text("omar") }, at(3)));

    let mut device = Device::new(2);
    let first = device.grant(sharing(waiter(1, "ruth", at(0))), at(0));
    device.grant(sharing(waiter(2, "omar", at(0))), at(0));
    device.wait(sharing(kim(waiter(3, "kim", at(1)), at(1))), at(1));
    ways.push(("a shared seat", device, release(&first), at(2)));
    ways
}

/// It is kept for Omar, and Kim is behind.
fn kept(kim: impl Fn(Waiter, Now) -> Waiter) -> Device {
    let mut device = Device::new(1);
    device.rules.admission_grace = GRACE;
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(unattended(waiter(2, "omar", at(0)), at(0)), at(0));
    device.wait(kim(waiter(3, "kim", at(1)), at(1)), at(1));
    device.take(release(&ruths), at(2));
    assert_eq!(device.kept_for(), ["omar"]);
    device
}

#[test]
fn an_attended_waiter_is_granted_in_every_way_in_which_its_turn_can_come() {
    for (way, mut device, command, now) in ways(|waiter, _| waiter) {
        assert!(!device.holders().contains(&"kim".to_owned()), "{way}");
        let decision = device.take(command, now);
        assert_eq!(device.holders().last().map(String::as_str), Some("kim"), "{way}");
        assert!(!device.waiters().contains(&"kim".to_owned()), "{way}");
        assert_eq!(admitted(&decision.changes), Vec::<String>::new(), "{way}");
    }
}

#[test]
fn an_unattended_waiter_is_admitted_in_every_way_in_which_its_turn_can_come() {
    for (way, mut device, command, now) in ways(unattended) {
        let decision = device.take(command, now);
        assert_eq!(admitted(&decision.changes), ["kim"], "{way}");
        assert!(!device.holders().contains(&"kim".to_owned()), "{way}");
        assert!(!device.waiters().contains(&"kim".to_owned()), "{way}");
    }
}

#[test]
fn leaving_a_shared_seat_that_was_kept_admits_the_next() {
    let mut device = Device::new(3);
    device.rules.admission_grace = GRACE;
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    for (number, holder) in [(2, "omar"), (3, "kim"), (4, "job")] {
        device.wait(sharing(unattended(waiter(number, holder, at(1)), at(1))), at(1));
    }
    assert_eq!(admitted(&device.take(release(&ruths), at(2)).changes), ["omar"]);
    assert_eq!(admitted(&device.take(Command::Leave { holder: text("omar") }, at(3)).changes), ["kim"]);
    assert_eq!((device.kept_for(), device.waiters()), (vec!["kim".to_owned()], vec!["job".to_owned()]));
}

#[test]
fn admission_names_the_unattended_waiter_and_makes_no_lease() {
    let (mut device, ruths) = held(unattended);
    let decision = device.take(release(&ruths), at(2));
    assert_eq!(decision.reply, Reply::Released(ruths.lease, Some(text("kim"))));
    assert!(!decision.changes.iter().any(|change| matches!(change, Change::Granted { .. } | Change::Reserved(_))));
    assert_eq!((device.holders(), device.waiters(), device.kept_for()), (vec![], vec![], vec![]));
}

#[test]
fn the_answer_to_a_release_names_the_attended_waiter_that_was_granted() {
    let (mut device, ruths) = held(|waiter, _| waiter);
    let decision = device.take(release(&ruths), at(2));
    assert_eq!(decision.reply, Reply::Released(ruths.lease, Some(text("kim"))));
}

#[test]
fn a_third_party_that_acquires_in_the_gap_wins_and_the_admitted_caller_joins_again_at_the_end() {
    let (mut device, ruths) = held(unattended);
    device.wait(unattended(waiter(3, "omar", at(1)), at(1)), at(1));
    device.take(release(&ruths), at(2));
    device.grant(unattended(waiter(4, "third", at(3)), at(3)), at(3));
    let reply = device.ask(unattended(waiter(5, "kim", at(4)), at(4)), at(4));
    assert_eq!(reply, Reply::Pending { request: request(5), position: 2 });
    assert_eq!(device.waiters(), ["omar", "kim"]);
}

#[test]
fn an_admitted_caller_that_asks_in_time_gets_its_lease() {
    let (mut device, ruths) = held(unattended);
    device.take(release(&ruths), at(2));
    device.grant(unattended(waiter(3, "kim", at(3)), at(3)), at(3));
}

#[test]
fn one_unattended_waiter_is_admitted_for_each_freeing() {
    let (mut device, ruths) = held(unattended);
    device.wait(unattended(waiter(3, "omar", at(1)), at(1)), at(1));
    assert_eq!(admitted(&device.take(release(&ruths), at(2)).changes), ["kim"]);
    assert_eq!(device.take(Command::Wake, at(3)).changes, []);
    assert_eq!(device.waiters(), ["omar"]);
    device.grant(unattended(waiter(4, "omar", at(4)), at(4)), at(4));
}

#[test]
fn with_a_grace_the_resource_is_kept_and_passes_on_when_it_is_not_claimed() {
    let mut device = kept(unattended);
    device.wait(waiter(4, "third", at(3)), at(3));
    device.wait(ranked(unattended(waiter(5, "vip", at(3)), at(3)), 9), at(3));
    assert_eq!(device.take(Command::Wake, at(10_001)).changes, []);
    let decision = device.take(Command::Wake, at(10_002));
    assert_eq!(admitted(&decision.changes), ["vip"]);
    assert_eq!((device.holders(), device.kept_for()), (vec![], vec!["vip".to_owned()]));
    device.grant(unattended(waiter(6, "vip", at(10_003)), at(10_003)), at(10_003));
    assert_eq!((device.kept_for(), device.waiters()), (vec![], vec!["kim".to_owned(), "third".to_owned()]));
}

#[test]
fn a_reservation_outlives_the_node_with_its_whole_grace() {
    let mut device = kept(unattended);
    device.carry_out(vec![], at(9_000), Crash::BeforeApply);
    device.wait(unattended(waiter(4, "third", at(18_999)), at(18_999)), at(18_999));
    device.grant(unattended(waiter(5, "omar", at(18_999)), at(18_999)), at(18_999));
}

#[test]
fn without_a_grace_the_first_fitting_attended_waiter_behind_an_unattended_one_is_granted_at_once() {
    let (mut device, ruths) = held(unattended);
    device.wait(unattended(waiter(3, "omar", at(1)), at(1)), at(1));
    device.wait(waiter(4, "job", at(1)), at(1));
    device.wait(waiter(5, "late", at(1)), at(1));
    let decision = device.take(release(&ruths), at(2));
    assert_eq!(decision.reply, Reply::Released(ruths.lease, Some(text("kim"))), "the one taken first is named");
    assert_eq!(device.holders(), ["job"]);
    assert_eq!(device.waiters(), ["omar", "late"]);
}

#[test]
fn a_priority_5_caller_who_joined_second_is_admitted_before_a_default_priority_caller() {
    let (mut device, ruths) = held(unattended);
    let reply = device.ask(ranked(unattended(waiter(3, "omar", at(2)), at(2)), 5), at(2));
    assert_eq!(reply, Reply::Pending { request: request(3), position: 1 });
    assert_eq!(admitted(&device.take(release(&ruths), at(3)).changes), ["omar"]);
    assert_eq!(device.waiters(), ["kim"]);
}

#[test]
fn whoever_shares_does_not_slip_past_one_that_waits_to_have_it_alone() {
    let mut device = Device::new(3);
    device.grant(sharing(waiter(1, "ruth", at(0))), at(0));
    device.wait(unattended(waiter(2, "omar", at(1)), at(1)), at(1));
    device.wait(sharing(waiter(3, "kim", at(2))), at(2));
    device.wait(sharing(unattended(waiter(4, "job", at(2)), at(2))), at(2));
    assert_eq!(device.waiters(), ["omar", "kim", "job"]);
}

#[test]
fn only_one_that_shares_passes_an_unattended_one_that_could_have_it_alone() {
    let mut device = Device::new(3);
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(unattended(waiter(2, "first", at(1)), at(1)), at(1));
    device.wait(unattended(waiter(3, "alone", at(1)), at(1)), at(1));
    device.wait(sharing(waiter(4, "kim", at(1))), at(1));
    device.wait(sharing(waiter(5, "omar", at(1))), at(1));
    device.take(release(&ruths), at(2));
    assert_eq!(device.holders(), ["kim"]);
    assert_eq!(device.waiters(), ["alone", "omar"], "it has to be free before more come to share it");
}

#[test]
fn what_was_kept_for_a_holder_is_used_up_by_its_attended_request_too() {
    let mut device = Device::new(1);
    device.rules.admission_grace = GRACE;
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(unattended(waiter(2, "kim", at(1)), at(1)), at(1));
    device.wait(waiter(3, "kim", at(1)), at(1));
    device.take(release(&ruths), at(2));
    assert_eq!((device.holders(), device.kept_for()), (vec!["kim".to_owned()], vec![]));
}

#[test]
fn what_was_kept_for_a_holder_is_used_up_by_an_offer_too() {
    let mut device = kept(unattended);
    let offered = Command::Offer { waiter: Box::new(waiter(7, "omar", at(3))), stored: true };
    assert!(matches!(device.take(offered, at(3)).reply, Reply::Granted(_)));
    assert_eq!(device.kept_for(), Vec::<String>::new());
}

#[test]
fn whoever_is_admitted_again_has_one_reservation() {
    let mut device = kept(unattended);
    device.take(Command::Drain(true), at(3));
    device.wait(ranked(unattended(waiter(7, "omar", at(4)), at(4)), 1), at(4));
    let undrained = device.take(Command::Drain(false), at(5));
    assert_eq!(admitted(&undrained.changes), ["omar"]);
    assert_eq!(device.kept_for(), ["omar"]);
    assert_eq!(device.state.reserved[0].until, at(5 + 10_000).run);
}

#[test]
fn what_is_kept_for_a_holder_is_not_for_those_of_the_pool() {
    let mut device = Device::new(2);
    device.take(Command::Drain(true), at(0));
    device.wait(unattended(waiter(1, "kim", at(0)), at(0)), at(0));
    device.wait(sharing(waiter(2, "kim", at(0))), at(0));
    device.rules.admission_grace = GRACE;
    device.rivals.pinned = Some(rank(1, at(0), 1, 3, None));
    device.take(Command::Drain(false), at(1));
    assert_eq!((device.holders(), device.waiters()), (vec!["kim".to_owned()], vec![]));
}

#[test]
fn the_first_admission_after_a_start_keeps_what_expired_while_the_node_was_down_for_its_least_grace() {
    let (mut device, _) = held(unattended);
    device.wait(unattended(waiter(3, "omar", at(1)), at(1)), at(1));
    let start = at(700_000);
    device.carry_out(vec![], start, Crash::BeforeApply);
    let decision = device.take(Command::Serve { freed: Some(GRACE) }, start);
    assert_eq!(admitted(&decision.changes), ["kim"]);
    assert_eq!(device.kept_for(), ["kim"]);
    assert_eq!(device.waiters(), ["omar"]);
}

#[test]
fn what_has_expired_can_be_committed_apart_from_whom_it_is_handed_to() {
    let (mut device, ruths) = held(|waiter, _| waiter);
    let decision = device.decide(Command::Wake, at(600_000));
    let (own, handed_over) = decision.changes.split_at(decision.handed_over_from);
    assert!(matches!(own, [Change::Ended { lease, .. }] if *lease == ruths.lease), "{own:?}");
    assert!(matches!(handed_over, [Change::Granted { lease, .. }] if lease.holder == text("kim")), "{handed_over:?}");
    device.carry_out(own.to_vec(), at(600_000), Crash::Never);
    assert_eq!((device.holders(), device.waiters()), (vec![], vec!["kim".to_owned()]));
}

#[test]
fn an_attended_waiter_is_never_overtaken_by_a_newcomer_of_equal_priority() {
    let mut device = Device::new(1);
    device.rivals.exclusive = Some(rank(5, at(0), 1, 100, None));
    device.wait(waiter(1, "kim", at(0)), at(0));
    device.rivals.exclusive = None;
    let walk_up = ask(unattended(waiter(2, "omar", at(1)), at(1)));
    let decision = device.take(walk_up, at(1));
    assert_eq!(device.holders(), ["kim"]);
    assert_eq!(decision.reply, Reply::Pending { request: request(2), position: 1 });
}

#[test]
fn one_of_the_pool_is_granted_before_those_behind_it_and_after_those_ahead() {
    let mut device = Device::new(1);
    device.take(Command::Drain(true), at(0));
    device.wait(waiter(1, "kim", at(1)), at(1));
    let later = Command::Offer { waiter: Box::new(waiter(2, "pool", at(2))), stored: true };
    let earlier = Command::Offer { waiter: Box::new(ranked(waiter(3, "pool", at(2)), 1)), stored: true };
    device.rivals.exclusive = Some(rank(1, at(2), 1, 3, None));
    device.take(Command::Drain(false), at(3));
    assert_eq!(device.holders(), Vec::<String>::new(), "the pool is asked first");
    device.rivals.exclusive = Some(rank(0, at(2), 1, 2, None));
    assert_eq!(device.decide(later, at(3)).reply, Reply::Declined);
    device.rivals.exclusive = Some(rank(1, at(2), 1, 3, None));
    assert!(matches!(device.take(earlier, at(3)).reply, Reply::Granted(_)));
    assert_eq!((device.holders(), device.waiters()), (vec!["pool".to_owned()], vec!["kim".to_owned()]));
}

#[test]
fn after_a_restart_those_who_come_back_go_first() {
    let mut device = Device::new(1);
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(unattended(waiter(2, "kim", at(1)), at(1)), at(1));
    device.wait(waiter(3, "job", at(2)), at(2));
    let place = device.state.queue.iter().last().unwrap().rank;
    device.carry_out(vec![], at(3), Crash::BeforeApply);
    device.rivals.returning = Some(place);
    let freed = device.take(release(&ruths), at(4));
    assert_eq!((admitted(&freed.changes), freed.admission_left), (vec![], true));
    let walk_up = waiter(4, "walk-up", at(5));
    device.wait(walk_up, at(5));
    device.rivals.returning = None;
    let back = Waiter { rank: place, returns: Some(request(3)), ..waiter(5, "job", at(6)) };
    device.rivals.returning = Some(place);
    device.grant(back, at(6));
}

#[test]
fn an_admission_that_was_given_to_one_who_came_back_is_not_left_for_another() {
    let mut device = Device::new(1);
    let ruths = device.grant(waiter(1, "ruth", at(0)), at(0));
    device.wait(unattended(waiter(2, "kim", at(1)), at(1)), at(1));
    let back = unattended(waiter(3, "job", at(2)), at(2));
    device.wait(Waiter { returns: Some(request(90)), ..back }, at(2));
    device.rivals.returning = Some(rank(0, at(3), 1, 91, None));
    let freed = device.take(release(&ruths), at(4));
    assert_eq!((admitted(&freed.changes), freed.admission_left), (vec!["job".to_owned()], false));
}

#[test]
fn while_a_resource_is_drained_its_leases_stay_and_nobody_is_served() {
    let (mut device, ruths) = held(|waiter, _| waiter);
    device.take(Command::Drain(true), at(2));
    assert_eq!(device.holders(), ["ruth"]);
    assert_eq!(device.take(release(&ruths), at(3)).reply, Reply::Released(ruths.lease, None));
    assert_eq!((device.holders(), device.waiters()), (vec![], vec!["kim".to_owned()]));
    let offer = Command::Offer { waiter: Box::new(ranked(waiter(4, "pool", at(4)), 9)), stored: true };
    assert_eq!(device.take(offer, at(4)).reply, Reply::Declined);
}

#[test]
fn a_probe_of_a_gateway_that_is_declined_leaves_no_trace() {
    let (mut device, _) = held(|waiter, _| waiter);
    let before = device.state.clone();
    let mode = Mode::Shared;
    let mut probe = waiter(3, "gw:gateway:job", at(2));
    probe.proposal.mode = mode;
    let otherwise = berth::admission::resource::Otherwise::Decline(berth::model::WaitPolicy::NoWait);
    let (left_out, speaker) = (LeftOut::default(), Speaker::Gateway);
    let decision = device.take(Command::Ask { waiter: Box::new(probe), otherwise, left_out, speaker }, at(2));
    assert_eq!((decision.reply, decision.changes), (Reply::Declined, vec![]));
    assert_eq!(device.state, before);
}
