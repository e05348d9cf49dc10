//! `cairn prune`.

use crate::fixture::{Place, check};
use std::fs;

fn steps(place: &Place) -> Vec<u64> {
    let found = place.json(&["ls", "run"]);
    let steps = found["steps"].as_array().unwrap().iter();
    steps.map(|step| step["step"].as_u64().unwrap()).collect()
}

fn long_run() -> Place {
    let place = Place::with_run();
    place.save("run", 30, &[]);
    place.save("run", 40, &[]);
    place
}

#[test]
fn a_dry_run_says_what_goes_and_what_stays_and_why() {
    let place = long_run();
    let rules = [
        "prune",
        "run",
        "--keep-last",
        "1",
        "--keep-every",
        "30",
        "--keep-tag",
        "eval",
    ];
    check!(place.cairn(&[&rules[..], &["--dry-run"]].concat()), @"
    exit code 0
    ----- stdout
    keep    40  last
    keep    30  every 30
    keep    20  tag eval
    remove  10

    would delete 1 step, 22.2 KiB
    ----- stderr
    ");
    assert_eq!(steps(&place), [40, 30, 20, 10]);
    check!(place.cairn(&[&rules[..], &["--yes"]].concat()), @"
    exit code 0
    ----- stdout
    keep    40  last
    keep    30  every 30
    keep    20  tag eval
    remove  10

    deleted 1 step, 22.2 KiB
    ----- stderr
    ");
    assert_eq!(steps(&place), [40, 30, 20]);
}

#[test]
fn nothing_goes_without_a_yes() {
    let place = long_run();
    check!(place.cairn(&["prune", "run", "--keep-last", "1"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: nothing was deleted: there is nobody to ask

    hint: `--dry-run` shows what would go, `--yes` deletes it
    ");
    assert_eq!(steps(&place).len(), 4);
}

#[test]
fn a_rule_is_required() {
    check!(long_run().cairn(&["prune", "run", "--yes"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: the following required arguments were not provided:
      <--keep-last <N>|--keep-every <N>|--keep-tag <TAG>|--incomplete [<AGE>]>

    Usage: cairn prune --yes <--keep-last <N>|--keep-every <N>|--keep-tag <TAG>|--incomplete [<AGE>]> <RUN>

    For more information, try '--help'.
    ");
}

#[test]
fn leftovers_go_and_every_step_stays() {
    let place = long_run();
    fs::remove_file(place.path("run/step-00000040/COMMIT")).unwrap();
    check!(place.cairn(&["prune", "run", "--incomplete", "--yes"]), @"
    exit code 0
    ----- stdout
    leave  40  never committed
    keep   30  last
    keep   20  last
    keep   10  last

    nothing to delete
    ----- stderr
    ");
    check!(place.cairn(&["prune", "run", "--incomplete", "0s", "--yes"]), @"
    exit code 0
    ----- stdout
    keep    30  last
    keep    20  last
    keep    10  last
    remove      step-00000040/[ATTEMPT]

    deleted 1 attempt, 21.4 KiB
    ----- stderr
    ");
    assert_eq!(place.json(&["ls", "run"])["latest"], 30);
}

#[test]
fn the_last_good_step_is_never_deleted() {
    let place = long_run();
    let found = place.json(&["prune", "run", "--keep-last", "0", "--yes"]);
    assert_eq!(found["remove"], serde_json::json!([10, 20, 30]));
    assert_eq!(steps(&place), [40]);
}
