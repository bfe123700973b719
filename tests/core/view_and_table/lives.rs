//! Lives that once ended in a wrong table.

use super::Step;
use super::lab::Lab;
use super::worker::Who;

/// What happens at and around the first worker; then all that is on its way arrives.
fn live(steps: impl IntoIterator<Item = Step>) {
    let mut lab = Lab::new();
    for (number, step) in steps.into_iter().enumerate() {
        lab.step(number, 0, step);
    }
    lab.hear_snapshot(1);
    lab.settle_down();
    lab.assert_views();
    lab.assert_table();
}

/// A lease of the name `mine` on a resource.
fn mine(resource: usize, who: Who) -> Step {
    Step::Grant { resource, shared: false, name: Some(0), who }
}

/// A lease without a name on a resource.
fn unnamed(resource: usize, who: Who) -> Step {
    Step::Grant { resource, shared: false, name: None, who }
}

const EXPIRE: Step = Step::End { index: 0, called: false };
const RELEASE: Step = Step::End { index: 0, called: true };
const ANSWER: Step = Step::HearAnswer(0);

#[test]
fn a_late_answer_does_not_route_a_lease_whose_end_was_reported() {
    live([Step::HearSnapshot, unnamed(0, Who::Sent), EXPIRE, Step::Resync, Step::HearSnapshot, ANSWER]);
}

#[test]
fn what_became_of_a_dispatch_says_nothing_of_what_ended_on_its_resource() {
    live([
        unnamed(0, Who::Former),
        Step::Resync,
        Step::HearSnapshot,
        Step::HearSnapshot,
        EXPIRE,
        unnamed(0, Who::Sent),
        unnamed(1, Who::Former),
        Step::Settle,
        ANSWER,
    ]);
}

#[test]
fn a_former_lease_of_a_name_does_not_come_back_before_its_end_is_reported() {
    for resource in [0, 1] {
        let begin = [Step::HearSnapshot, mine(0, Who::Former), EXPIRE, mine(resource, Who::Sent), ANSWER];
        live(begin.clone());
        live(begin.into_iter().chain([RELEASE, ANSWER]));
    }
}
