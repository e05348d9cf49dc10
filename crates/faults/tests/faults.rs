//! Thousands of worlds: no promise is broken in any, every known mistake is found, and what fails can be run again.

use cairn_faults::{Case, Defect, Outcome, minimise, run_case, run_seeds};

/// Worlds of the campaign that runs with every test.
const SEEDS: u64 = 2000;
/// Worlds in which a promise was broken once.
const ONCE_BROKEN: [u64; 39] = [
    43, 249, 546, 1464, 1623, 1765, 2162, 2546, 4665, 5177, 5904, 6428, 6669, 6770, 6980, 9125,
    9401, 11_494, 12_163, 12_560, 23_651, 28169, 30_767, 37_093, 62082, 70_931, 75500, 87_389,
    93792, 103_299, 117_563, 121_946, 130_263, 169_283, 172_318, 174_206, 194_826, 1_060_998,
    2_040_769,
];
/// Worlds in which each known mistake must show, and how many are run at a time.
const DEFECT_SEEDS: u64 = 4000;
const BATCH: usize = 40;
const THREADS: usize = 2;

#[test]
fn no_promise_is_broken_in_two_thousand_worlds() {
    let summary = run_seeds(0..SEEDS, THREADS, None, &|_, _| {});
    let broken = summary
        .broken
        .first()
        .map(|outcome| minimise(outcome, None));
    assert!(broken.is_none(), "{}", told(broken.as_ref()));
    assert_eq!(summary.cases, SEEDS);
    // A campaign in which nothing happens proves nothing.
    assert!(summary.promises > SEEDS, "{} promises", summary.promises);
    let faults = summary.faults.values().sum::<u64>();
    assert!(faults > SEEDS / 2, "{faults} faults");
    assert!(summary.faults.len() >= 12, "{:?}", summary.faults);
    assert!(summary.checks.len() >= 8, "{:?}", summary.checks);
    assert!(
        summary.failures > SEEDS / 4,
        "{} failures",
        summary.failures
    );
}

#[test]
fn what_was_broken_once_holds() {
    for seed in ONCE_BROKEN {
        let outcome = run_case(&Case::draw(seed), None);
        assert!(outcome.violations.is_empty(), "{}", told(Some(&outcome)));
    }
}

#[test]
fn every_known_mistake_is_found() {
    for defect in Defect::ALL {
        assert!(first_broken(defect).is_some(), "{defect:?} is not found");
    }
}

#[test]
fn a_failure_runs_again_exactly_and_is_cut_down() {
    let first = first_broken(Defect::PublishBeforeSync).expect("the mistake is found");
    let defect = Some(Defect::PublishBeforeSync);
    let again = run_case(&Case::draw(first.case.seed), defect);
    assert_eq!(again.hash, first.hash);
    assert_eq!(again.trace, first.trace);
    let least = minimise(&first, defect);
    assert!(!least.violations.is_empty());
    assert!(least.case.faults.len() <= first.case.faults.len());
    assert_eq!(
        minimise(&least, defect).case,
        least.case,
        "nothing more can go"
    );
}

#[test]
fn worlds_do_not_depend_on_the_threads_they_run_on() {
    let [alone, together] = [1, 3].map(|threads| run_seeds(0..60, threads, None, &|_, _| {}));
    assert_eq!(alone.hash, together.hash);
    assert_eq!(alone.promises, together.promises);
}

/// The first world that shows a mistake.
fn first_broken(defect: Defect) -> Option<Outcome> {
    let batches = (0..DEFECT_SEEDS).step_by(BATCH);
    { batches }.find_map(|from| {
        let seeds = from..from + BATCH as u64;
        let summary = run_seeds(seeds, THREADS, Some(defect), &|_, _| {});
        summary.broken.into_iter().next()
    })
}

fn told(outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else {
        return String::new();
    };
    let broken = outcome.violations.join("\n");
    format!("{}\n{broken}\n{}", outcome.case, outcome.trace.join("\n"))
}
