//! Every order of the moves of a small world keeps every promise, and each mistake is found.

use cairn_protocol::{Bound, Broken, Limits, Mistake, Report, Rules, check};

fn search(rules: &Rules, bound: &Bound) -> Report {
    check(rules, bound, Limits::default())
}

#[track_caller]
fn assert_found(mistake: Mistake, bound: &Bound, broken: Broken) {
    let report = search(&Rules::with(mistake), bound);
    let found = report.counterexample.expect("it breaks a promise");
    assert_eq!(found.broken, broken, "{:#?}", found.story);
}

#[test]
fn a_small_world_keeps_every_promise() {
    let report = search(&Rules::PROVEN, &Bound::SMALL);
    assert_eq!(report.counterexample, None);
    assert!(report.is_complete && report.states > 100_000, "{report:?}");
}

#[test]
fn the_least_order_keeps_every_promise_without_uploads() {
    let report = search(&Rules::LEAST, &Bound::SMALL);
    assert_eq!(report.counterexample, None);
}

/// A world with an upload, in which one pruning is enough.
const UPLOADS: Bound = Bound {
    prunings: 1,
    uploads: true,
    crashes: 0,
    ..Bound::SMALL
};

#[test]
fn a_small_world_with_an_upload_keeps_every_promise() {
    let report = search(&Rules::PROVEN, &UPLOADS);
    assert_eq!(report.counterexample, None);
    assert!(report.is_complete && report.states > 100_000, "{report:?}");
}

#[test]
fn a_commit_that_is_taken_back_after_others_counted_on_it_is_found() {
    assert_found(Mistake::CountedBeforeAlone, &UPLOADS, Broken::Lost);
}

#[test]
fn a_replacement_that_is_deleted_by_who_takes_back_another_attempt_is_found() {
    assert_found(Mistake::TakenBackByKey, &Bound::SMALL, Broken::Lost);
}

#[test]
fn a_replacement_that_is_confirmed_for_what_another_pruning_hid_is_found() {
    let bound = Bound {
        takes_over: false,
        replaces: true,
        crashes: 0,
        ..Bound::SMALL
    };
    assert_found(Mistake::HiddenOverHidden, &bound, Broken::Lost);
}

#[test]
fn an_upload_over_a_younger_attempt_is_found() {
    assert_found(Mistake::UploadedOverYounger, &UPLOADS, Broken::Lost);
}

#[test]
fn a_pruning_that_forgets_who_is_about_to_commit_is_found() {
    assert_found(Mistake::RivalsForgotten, &UPLOADS, Broken::Lost);
}

#[test]
fn two_prunings_at_one_step_are_found() {
    let bound = Bound {
        crashes: 0,
        ..Bound::SMALL
    };
    assert_found(Mistake::Unlocked, &bound, Broken::Lost);
}

#[test]
fn attempts_that_are_not_counted_are_found() {
    assert_found(Mistake::AttemptsUncounted, &Bound::SMALL, Broken::Torn);
}
