//! The machines: where each is in its work, and its next move.

mod looking;
mod pruner;
mod removal;
mod replacer;
mod tagger;
mod uploader;
mod writer;

pub(crate) use pruner::Pruner;
pub(crate) use replacer::Replacer;
pub(crate) use tagger::Tagger;
pub(crate) use uploader::Uploader;
pub(crate) use writer::Writer;

use crate::rules::Rules;
use crate::state::State;

/// A state that comes next, and how.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) state: State,
    /// Who moves, and from where.
    pub(crate) told: fn(&State) -> String,
}

/// All states that one move leads to.
pub(crate) fn successors(state: &State, rules: &Rules, next: &mut Vec<Step>) {
    writer_moves::<0>(state, rules, next);
    writer_moves::<1>(state, rules, next);
    pruner_moves::<0>(state, rules, next);
    pruner_moves::<1>(state, rules, next);
    let told = |state: &State| format!("replacement: {:?}", state.replacer);
    moves(state, state.replacer.lives(), told, next, |state| {
        replacer::advance(state, rules);
    });
    let told = |state: &State| format!("upload: {:?}", state.uploader);
    moves(state, state.uploader.lives(), told, next, |state| {
        uploader::advance(state, rules);
    });
    let told = |state: &State| format!("tag: {:?}", state.tagger);
    moves(state, state.tagger.lives(), told, next, |state| {
        tagger::advance(state);
    });
    deaths(state, next);
}

fn moves(
    state: &State,
    lives: bool,
    told: fn(&State) -> String,
    next: &mut Vec<Step>,
    advance: impl FnOnce(&mut State),
) {
    if lives {
        let mut state = *state;
        advance(&mut state);
        next.push(Step { state, told });
    }
}

fn writer_moves<const INDEX: usize>(state: &State, rules: &Rules, next: &mut Vec<Step>) {
    let told = |state: &State| format!("writer {INDEX}: {:?}", state.writers[INDEX]);
    let lives = state.writers[INDEX].lives();
    moves(state, lives, told, next, |state| {
        writer::advance(state, INDEX, rules);
    });
    let told = |state: &State| format!("writer {INDEX} fails at {:?}", state.writers[INDEX]);
    let fails = INDEX == 1 && state.writers[INDEX] == Writer::Data;
    moves(state, fails, told, next, |state| {
        writer::fail(state, INDEX, rules);
    });
}

fn pruner_moves<const INDEX: usize>(state: &State, rules: &Rules, next: &mut Vec<Step>) {
    let told = |state: &State| format!("pruning {INDEX}: {:?}", state.pruners[INDEX]);
    let lives = state.pruners[INDEX].lives();
    moves(state, lives, told, next, |state| {
        pruner::advance(state, INDEX, rules);
    });
}

/// Everybody who is at work may die, if somebody may yet.
fn deaths(state: &State, next: &mut Vec<Step>) {
    if state.crashes == 0 {
        return;
    }
    let mut dies = |lives: bool, told: fn(&State) -> String, die: fn(&mut State)| {
        moves(state, lives, told, next, |state| {
            state.crashes -= 1;
            die(state);
        });
    };
    dies(
        state.writers[0].lives(),
        |state| format!("writer 0 dies at {:?}", state.writers[0]),
        |state| state.writers[0] = Writer::Dead,
    );
    dies(
        state.writers[1].lives(),
        |state| format!("writer 1 dies at {:?}", state.writers[1]),
        |state| state.writers[1] = Writer::Dead,
    );
    dies(
        state.pruners[0].lives(),
        |state| format!("pruning 0 dies at {:?}", state.pruners[0]),
        |state| state.pruners[0] = Pruner::Dead,
    );
    dies(
        state.pruners[1].lives(),
        |state| format!("pruning 1 dies at {:?}", state.pruners[1]),
        |state| state.pruners[1] = Pruner::Dead,
    );
    dies(
        state.replacer.lives(),
        |state| format!("replacement dies at {:?}", state.replacer),
        |state| state.replacer = Replacer::Ended,
    );
    dies(
        state.uploader.lives(),
        |state| format!("upload dies at {:?}", state.uploader),
        |state| state.uploader = Uploader::Dead,
    );
}
