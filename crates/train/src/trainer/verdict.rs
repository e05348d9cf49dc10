//! What all ranks together make of a step that they tried to load.
//!
//! Only a step whose damage is proven may be passed over: steps that follow take its place. Anything else that keeps a rank from reading it says
//! nothing about the step, and ends the launch.

use crate::error::{Error, told};
use cairn_checkpoint::Error as CheckpointError;
use serde::{Deserialize, Serialize};

/// What kept a rank from loading a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    kind: Kind,
    pub(super) reason: String,
    pub(super) hint: Option<String>,
}

/// What a refusal says about the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Its bytes are not the ones that were written.
    Damaged,
    /// It is not committed, or was deleted.
    Gone,
    /// It fits no trainer like this one, which every rank finds alike.
    Unfit,
    /// Nothing.
    Unreadable,
}

/// What all ranks do about a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All have loaded it.
    Good,
    /// It is damaged or gone: they look at the one before.
    PassOver { damaged: bool, reason: String },
    /// Each ends with its own error.
    Unfit,
    /// It may be good, but this rank cannot read it.
    Unreadable { rank: usize, refusal: Refusal },
}

impl Refusal {
    /// What an error says about the step that was being loaded.
    pub(super) fn of(error: &Error) -> Self {
        let kind = match error {
            Error::Checkpoint(error) | Error::Arena(cairn_arena::Error::Checkpoint(error)) => {
                kind_of(error)
            }
            Error::NotATrainer { .. } => Kind::Unfit,
            _ => Kind::Unreadable,
        };
        Self {
            kind,
            reason: told(error),
            hint: error.hint(),
        }
    }
}

fn kind_of(error: &CheckpointError) -> Kind {
    match error {
        CheckpointError::Deleted { .. }
        | CheckpointError::Incomplete { .. }
        | CheckpointError::NoSuchStep { .. } => Kind::Gone,
        CheckpointError::Keys(_) => Kind::Unfit,
        error if error.is_damage() => Kind::Damaged,
        _ => Kind::Unreadable,
    }
}

impl Verdict {
    /// What follows from the refusals of all ranks, by rank: the same on each.
    pub(super) fn of(refusals: Vec<Option<Refusal>>) -> Self {
        // Rank 0 looked for the step on behalf of all: if it has it, whoever does not find it looks in the wrong place.
        let finder = refusals.first().cloned().flatten();
        let is_gone = finder.is_some_and(|refusal| refusal.kind == Kind::Gone);
        let mut all_unfit = true;
        let mut worst: Option<(usize, Refusal)> = None;
        for (rank, refusal) in refusals.into_iter().enumerate() {
            all_unfit &= refusal.as_ref().is_some_and(|it| it.kind == Kind::Unfit);
            let Some(mut refusal) = refusal else { continue };
            if refusal.kind == Kind::Unfit || refusal.kind == Kind::Gone && !is_gone {
                refusal.kind = Kind::Unreadable;
            }
            let weight = |refusal: &Refusal| match refusal.kind {
                Kind::Unreadable | Kind::Unfit => 2,
                Kind::Damaged => 1,
                Kind::Gone => 0,
            };
            if worst
                .as_ref()
                .is_none_or(|(_, it)| weight(&refusal) > weight(it))
            {
                worst = Some((rank, refusal));
            }
        }
        match worst {
            None => Self::Good,
            Some(_) if all_unfit => Self::Unfit,
            Some((rank, refusal)) if refusal.kind == Kind::Unreadable => {
                Self::Unreadable { rank, refusal }
            }
            Some((_, refusal)) => Self::PassOver {
                damaged: refusal.kind == Kind::Damaged,
                reason: refusal.reason,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    //! One step as several ranks see it.

    use super::*;

    fn refusal(kind: Kind) -> Option<Refusal> {
        Some(Refusal {
            kind,
            reason: format!("{kind:?}"),
            hint: None,
        })
    }

    fn passed_over(verdict: &Verdict) -> Option<bool> {
        match verdict {
            Verdict::PassOver { damaged, .. } => Some(*damaged),
            _ => None,
        }
    }

    #[test]
    fn only_proven_damage_is_to_be_replaced() {
        assert_eq!(Verdict::of(vec![None, None]), Verdict::Good);
        let damaged = Verdict::of(vec![None, refusal(Kind::Damaged)]);
        assert_eq!(passed_over(&damaged), Some(true));
        let gone = Verdict::of(vec![refusal(Kind::Gone), None]);
        assert_eq!(passed_over(&gone), Some(false));
    }

    #[test]
    fn errors_that_prove_no_damage_say_nothing_about_the_step() {
        let of = |error: CheckpointError| Refusal::of(&error.into()).kind;
        let (file, feature) = ("COMMIT".to_string(), "tomorrow".to_string());
        let needs = CheckpointError::Needs { file, feature };
        assert_eq!(of(needs), Kind::Unreadable);
        let version = CheckpointError::Version {
            file: "COMMIT".into(),
            found: 9,
            supported: 2,
        };
        assert_eq!(of(version), Kind::Unreadable);
        let missing = CheckpointError::Store {
            action: "read".into(),
            source: cairn_store::Error::NotFound { key: "a".into() },
        };
        assert_eq!(of(missing), Kind::Damaged);
        assert_eq!(of(CheckpointError::Deleted { step: 1 }), Kind::Gone);
    }

    #[test]
    fn a_rank_that_cannot_read_a_step_ends_all_even_if_another_finds_it_damaged() {
        let verdict = Verdict::of(vec![
            None,
            refusal(Kind::Damaged),
            refusal(Kind::Unreadable),
        ]);
        assert!(matches!(verdict, Verdict::Unreadable { rank: 2, .. }));
    }

    #[test]
    fn a_step_that_only_one_rank_does_not_find_is_not_gone() {
        let verdict = Verdict::of(vec![None, refusal(Kind::Gone)]);
        assert!(matches!(verdict, Verdict::Unreadable { rank: 1, .. }));
    }

    #[test]
    fn a_step_that_fits_nobody_ends_each_with_its_own_error() {
        let all = Verdict::of(vec![refusal(Kind::Unfit), refusal(Kind::Unfit)]);
        assert_eq!(all, Verdict::Unfit);
        let one = Verdict::of(vec![None, refusal(Kind::Unfit)]);
        assert!(matches!(one, Verdict::Unreadable { rank: 1, .. }));
    }
}
