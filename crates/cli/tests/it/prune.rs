//! `cairn prune`.

use crate::fixture::{Place, check};
use std::fs;
use std::time::{Duration, SystemTime};

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
    let rules = ["prune", "run", "--keep-last", "1", "--keep-every", "30"];
    check!(place.cairn(&[&rules[..], &["--dry-run"]].concat()), @"
    exit code 0
    ----- stdout
    keep    40  last
    keep    30  every 30
    keep    20  tag eval
    remove  10  no rule keeps it

    would delete 1 step, 22.4 KiB
    ----- stderr
    ");
    assert_eq!(steps(&place), [40, 30, 20, 10]);
    check!(place.cairn(&[&rules[..], &["--yes"]].concat()), @"
    exit code 0
    ----- stdout
    keep    40  last
    keep    30  every 30
    keep    20  tag eval
    remove  10  no rule keeps it

    deleted 1 step, 22.4 KiB
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
      <--keep-last <N>|--keep-every <N>|--keep-best <RULE>|--keep-within <RULE>|--incomplete [<AGE>]>

    Usage: cairn prune --yes <--keep-last <N>|--keep-every <N>|--keep-best <RULE>|--keep-within <RULE>|--incomplete [<AGE>]> <RUN>

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
    keep   20  last, tag eval
    keep   10  last

    nothing to delete
    ----- stderr
    ");
    check!(place.cairn(&["prune", "run", "--incomplete", "0s", "--yes"]), @"
    exit code 0
    ----- stdout
    keep    30  last
    keep    20  last, tag eval
    keep    10  last
    remove      step-00000040/[ATTEMPT]

    deleted 1 attempt, 21.5 KiB
    ----- stderr
    ");
    assert_eq!(place.json(&["ls", "run"])["latest"], 30);
}

#[test]
fn what_a_killed_writer_left_goes_even_if_every_step_stays() {
    let place = long_run();
    let attempt = place.path("run/step-00000050/0123456789abcdef");
    fs::create_dir_all(&attempt).unwrap();
    // In no listing, and of a machine whose locks nobody sees.
    let half_written = attempt.join(".tmp-0000000000000000-0000000000000000-0");
    let file = fs::File::create(&half_written).unwrap();
    let days_ago = SystemTime::now() - Duration::from_secs(3 * 24 * 60 * 60);
    file.set_modified(days_ago).unwrap();
    drop(file);
    let found = place.json(&["prune", "run", "--keep-last", "99", "--dry-run"]);
    assert_eq!(found["remove"], serde_json::json!([]));
    assert!(half_written.exists());
    place.json(&["prune", "run", "--keep-last", "99"]);
    assert!(!place.path("run/step-00000050").exists());
}

#[test]
fn the_last_good_step_is_never_deleted() {
    let place = long_run();
    let found = place.json(&["prune", "run", "--keep-last", "0", "--yes"]);
    assert_eq!(found["remove"], serde_json::json!([10, 30]));
    assert_eq!(steps(&place), [40, 20]);
}

#[test]
fn tags_come_and_go_and_keep_their_step() {
    let place = long_run();
    check!(place.cairn(&["tag", "run:10", "released"]), @"
    exit code 0
    ----- stdout
    step 10: released
    ----- stderr
    ");
    assert_eq!(
        place.json(&["ls", "run"])["steps"][3]["tags"],
        serde_json::json!(["released"])
    );
    place.json(&["prune", "run", "--keep-last", "1", "--yes"]);
    assert_eq!(steps(&place), [40, 20, 10]);
    check!(place.cairn(&["tag", "run:20", "eval", "--remove"]), @"
    exit code 0
    ----- stdout
    step 20 has no tags
    ----- stderr
    ");
    place.json(&["prune", "run", "--keep-last", "1", "--yes"]);
    assert_eq!(steps(&place), [40, 10]);
    check!(place.cairn(&["tag", "run:10", "a/b"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `a/b` cannot be the name of a tag

    hint: a tag has up to 64 letters, digits, `.`, `-` and `_`, and does not begin with `.`
    ");
}

#[test]
fn files_of_deleted_steps_wait_for_the_grace_period() {
    let place = long_run();
    let prune = |grace: &str| {
        place.json(&[
            "prune",
            "run",
            "--keep-last",
            "1",
            "--grace",
            grace,
            "--yes",
        ])
    };
    assert_eq!(prune("1h")["remove"], serde_json::json!([10, 30]));
    check!(place.cairn(&["inspect", "run:10"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: step 10 was deleted

    hint: read a newer step; a tag keeps a step for good, and a grace period its files for those who read it
    ");
    assert_eq!(place.json(&["ls", "run"])["steps"][3]["state"], "deleted");
    assert!(
        place
            .output(&["verify", "run", "--finish"])
            .status
            .success()
    );
    assert_eq!(prune("1h")["purge"], serde_json::json!([]));
    assert_eq!(prune("0s")["purge"], serde_json::json!([10, 30]));
    assert_eq!(steps(&place), [40, 20]);
}

#[test]
fn a_rule_that_cannot_be_read_says_what_one_looks_like() {
    check!(long_run().cairn(&["prune", "run", "--keep-best", "loss", "--yes"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: invalid value 'loss' for '--keep-best <RULE>': expected `min:METRIC:COUNT` or `max:METRIC:COUNT`, such as `min:eval_loss:3`

    For more information, try '--help'.
    ");
}
