//! Rules are read as they are written, keep what they say, and never less than the newest and the tagged.

use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

fn facts(step: u64, created: u64) -> Facts {
    Facts {
        step,
        created: Some(created),
        ..Facts::default()
    }
}

fn with_loss(step: u64, loss: f64) -> Facts {
    Facts {
        metrics: [("loss".to_string(), loss)].into(),
        ..facts(step, step)
    }
}

fn kept(keep: &Keep, steps: &[Facts], now: u64) -> Vec<u64> {
    keep.reasons(steps, &History::default(), now)
        .into_keys()
        .collect()
}

fn best(text: &str) -> Keep {
    Keep {
        best: vec![text.parse().unwrap()],
        ..Keep::default()
    }
}

fn within(texts: &[&str]) -> Keep {
    Keep {
        within: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..Keep::default()
    }
}

#[test]
fn rules_are_read_as_they_are_written() {
    for text in ["min:loss:3", "max:eval/acc:1", "min:a:b:7"] {
        assert_eq!(text.parse::<Best>().unwrap().to_string(), text);
    }
    assert_eq!("max:acc".parse::<Best>().unwrap().count, 1);
    for text in ["1d", "30d/1d", "25h/30min"] {
        assert_eq!(text.parse::<Within>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "loss",
        "best:loss:1",
        "min::1",
        "min:loss:0",
        "min:loss:x",
        "min:",
    ] {
        assert!(text.parse::<Best>().is_err(), "{text}");
    }
    for text in ["", "24", "30d/", "/1d", "1d/30d", "30d/0s", "1d/1h/1s"] {
        assert!(text.parse::<Within>().is_err(), "{text}");
    }
}

#[test]
fn the_best_are_kept_by_either_goal_and_of_equal_ones_the_newer() {
    let steps = [(1, 0.5), (2, 0.1), (3, 0.9), (4, 0.1), (5, 0.7)];
    let steps = steps.map(|(step, loss)| with_loss(step, loss));
    assert_eq!(kept(&best("min:loss:1"), &steps, 0), [4, 5]);
    assert_eq!(kept(&best("min:loss:2"), &steps, 0), [2, 4, 5]);
    assert_eq!(kept(&best("max:loss:2"), &steps, 0), [3, 5]);
    assert_eq!(kept(&best("max:accuracy:2"), &steps, 0), [5]);
}

#[test]
fn what_is_no_number_is_never_the_best() {
    let steps = [
        (1, f64::NAN),
        (2, f64::NEG_INFINITY),
        (3, 2.0),
        (4, f64::NAN),
    ];
    let steps = steps.map(|(step, loss)| with_loss(step, loss));
    assert_eq!(kept(&best("min:loss:3"), &steps, 0), [3, 4]);
}

#[test]
fn all_of_the_last_day_and_one_of_each_day_before() {
    let now = 100 * DAY + 12 * HOUR;
    // Four steps a day for 40 days, the last of them now.
    let steps: Vec<Facts> = (0..160)
        .map(|n| facts(n, now - (159 - n) * 6 * HOUR))
        .collect();
    assert_eq!(
        kept(&within(&["24h"]), &steps, now),
        [155, 156, 157, 158, 159]
    );
    let days = kept(&within(&["30d/1d"]), &steps, now);
    assert_eq!(days.len(), 32, "31 days are touched, and the newest stays");
    let both = kept(&within(&["24h", "30d/1d"]), &steps, now);
    assert_eq!(both.len(), 31 + 4);
}

#[test]
fn a_step_that_one_of_each_day_keeps_stays_kept_while_others_are_deleted() {
    let keep = within(&["30d/1d"]);
    let mut steps: Vec<Facts> = Vec::new();
    for n in 0..400 {
        let now = n * 5 * HOUR;
        steps.push(facts(n, now));
        let stay = kept(&keep, &steps, now);
        steps.retain(|facts| stay.contains(&facts.step));
    }
    // One for each of 30 days, the one that the 30 days begin in, and the newest.
    assert!((30..=32).contains(&steps.len()), "{}", steps.len());
}

#[test]
fn a_step_whose_time_cannot_be_read_is_not_taken_for_old() {
    let unknown = Facts {
        created: None,
        ..facts(1, 0)
    };
    let steps = [unknown, facts(2, 0), facts(3, 10 * DAY)];
    assert_eq!(kept(&within(&["1d"]), &steps, 10 * DAY), [1, 3]);
}

#[test]
fn every_rule_that_keeps_a_step_is_named() {
    let steps = [Facts {
        tags: vec!["golden".into()],
        ..with_loss(10, 1.0)
    }];
    let keep = Keep {
        last: 2,
        every: Some(5),
        ..best("min:loss:1")
    };
    let reasons = keep.reasons(&steps, &History::default(), 0);
    assert_eq!(
        reasons[&10],
        ["last", "every 5", "best min loss", "tag golden"]
    );
}

fn any_facts() -> impl Strategy<Value = Vec<Facts>> {
    let one = (0..100 * DAY, -1.0..1.0f64, prop::bool::weighted(0.1));
    prop::collection::btree_map(0..1000u64, one, 0..40).prop_map(|steps| {
        let facts = steps
            .into_iter()
            .map(|(step, (created, loss, tagged))| Facts {
                created: Some(created),
                tags: tagged.then(|| "t".to_string()).into_iter().collect(),
                ..with_loss(step, loss)
            });
        facts.collect()
    })
}

proptest! {
    #[test]
    fn the_newest_and_the_tagged_stay_under_every_policy(
        steps in any_facts(), last in 0..4usize, every in prop::option::of(0..50u64), count in 1..4usize, age in 0..50 * DAY,
    ) {
        let keep = Keep {
            last,
            every,
            best: vec![Best { metric: "loss".into(), goal: Goal::Max, count }],
            within: vec![Within { age: Duration::from_secs(age), one_each: Some(Duration::from_secs(DAY)) }],
            ..Keep::default()
        };
        let kept = kept(&keep, &steps, 100 * DAY);
        for facts in steps.iter().filter(|facts| !facts.tags.is_empty()).chain(steps.last()) {
            prop_assert!(kept.contains(&facts.step));
        }
        for facts in steps.iter().rev().take(last) {
            prop_assert!(kept.contains(&facts.step));
        }
        // What goes is worse than every one of the best.
        let gone = steps.iter().filter(|facts| !kept.contains(&facts.step));
        for facts in gone {
            let better = steps.iter().filter(|other| other.metrics["loss"] >= facts.metrics["loss"]).count();
            prop_assert!(better > count);
        }
    }

    #[test]
    fn pruning_twice_deletes_nothing_more(steps in any_facts(), last in 0..3usize, every in 1..9u64) {
        let keep = Keep { last, every: Some(every), within: vec!["30d/1d".parse().unwrap()], ..best("min:loss:2") };
        let first = kept(&keep, &steps, 100 * DAY);
        let left: Vec<Facts> = steps.into_iter().filter(|facts| first.contains(&facts.step)).collect();
        prop_assert_eq!(kept(&keep, &left, 100 * DAY), first);
    }
}
