//! Runs that go back: what is newest, what led to it, and what older versions see.

use super::*;
use crate::{Checkpoint, Checkpointer, LoadOptions, SaveOptions, State, Target, World};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::Memory;
use std::sync::Arc;

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

fn launch(store: &Arc<dyn Store>) -> Checkpointer {
    Checkpointer::new(store.clone(), World::single())
}

fn spec() -> TensorSpec {
    TensorSpec::parse(&Mesh::single(), "u8[1]").unwrap()
}

fn save(run: &Checkpointer, step: u64) -> Result<(), Arc<Error>> {
    let bytes = [u8::try_from(step).unwrap()];
    let mut state = State::new(0);
    state.tensor("weights", &spec(), &bytes).unwrap();
    let saving = run.save(step, &state, &SaveOptions::default());
    saving.map_err(Arc::new)?.wait().map(drop)
}

fn save_all(run: &Checkpointer, steps: &[u64]) {
    steps.iter().for_each(|step| save(run, *step).unwrap());
}

/// A launch that goes on from `step`.
fn back_to(store: &Arc<dyn Store>, step: u64) -> Checkpointer {
    let run = launch(store);
    run.resumed_from(&Checkpoint::open(store.clone(), step).unwrap());
    run
}

fn history_of(store: &Arc<dyn Store>) -> History {
    let steps = crate::run::committed_steps(store.as_ref()).unwrap();
    let open = |step| Checkpoint::open(store.clone(), step).unwrap();
    let found: Vec<Checkpoint> = steps.into_iter().map(open).collect();
    history(store.as_ref(), found.iter().map(Checkpoint::manifest)).unwrap()
}

fn line(store: &Arc<dyn Store>, step: u64) -> u64 {
    let checkpoint = Checkpoint::open(store.clone(), step).unwrap();
    checkpoint.manifest().line
}

fn latest(store: &Arc<dyn Store>) -> u64 {
    launch(store).latest().unwrap().checkpoint.step()
}

#[test]
fn a_run_that_goes_on_stays_on_its_line() {
    let store = memory();
    save_all(&launch(&store), &[10, 20]);
    save_all(&back_to(&store, 20), &[30, 40]);
    assert_eq!(line(&store, 40), 0);
    let manifest = Checkpoint::open(store.clone(), 30).unwrap();
    assert_eq!(manifest.manifest().parent.as_ref().unwrap().step, 20);
    assert_eq!(newest(store.as_ref()).unwrap(), 0);
    assert!(store.list(FOLDER).unwrap().is_empty());
}

#[test]
fn a_run_that_goes_back_begins_a_line_and_its_steps_are_the_newest() {
    let store = memory();
    save_all(&launch(&store), &[10, 20, 30]);
    save_all(&back_to(&store, 20), &[21, 22]);
    assert_eq!(latest(&store), 22);
    assert_eq!((line(&store, 30), line(&store, 22)), (0, 1));
    // The next launch goes on there.
    let run = launch(&store);
    let mut loaded = [0];
    let target = Target::new("weights", &spec(), 0, &mut loaded).unwrap();
    run.load_latest(vec![target], &LoadOptions::default())
        .unwrap();
    assert_eq!(loaded, [22]);
    save_all(&run, &[25]);
    assert_eq!((latest(&store), line(&store, 25)), (25, 1));
}

#[test]
fn a_step_of_an_abandoned_line_is_replaced_when_the_new_line_saves_that_number() {
    let store = memory();
    save_all(&launch(&store), &[10, 20, 30]);
    save_all(&back_to(&store, 20), &[25, 30, 35]);
    assert_eq!((line(&store, 30), latest(&store)), (1, 35));
}

#[test]
fn a_new_run_in_an_old_folder_is_refused_steps_that_are_taken_and_begins_a_line_elsewhere() {
    let store = memory();
    save_all(&launch(&store), &[10, 20, 30]);
    let run = launch(&store);
    save_all(&run, &[5]);
    let refused = save(&run, 10).unwrap_err();
    assert!(
        matches!(*refused, Error::StepTaken { step: 10, .. }),
        "{refused}"
    );
    assert_eq!((line(&store, 5), line(&store, 10)), (1, 0));
    assert_eq!(latest(&store), 5);
}

#[test]
fn lines_that_begin_at_once_get_numbers_of_their_own() {
    let store = memory();
    let begun = || Line {
        number: 0,
        launch: "one".into(),
        parent: None,
        created: "2026-01-01T00:00:00Z".into(),
    };
    assert_eq!(begin(store.as_ref(), begun()).unwrap(), 1);
    assert_eq!(begin(store.as_ref(), begun()).unwrap(), 2);
    assert_eq!(newest(store.as_ref()).unwrap(), 2);
    // Nothing was committed on them.
    save_all(&launch(&store), &[1]);
    assert_eq!(latest(&store), 1);
}

#[test]
fn the_history_leads_from_the_newest_line_to_the_first() {
    let store = memory();
    save_all(&launch(&store), &[10, 20, 30]);
    save_all(&back_to(&store, 20), &[21, 22, 23]);
    save_all(&back_to(&store, 22), &[24]);
    let history = history_of(&store);
    let led = [(0, 10), (0, 20), (1, 21), (1, 22), (2, 24)];
    let abandoned = [(0, 30), (1, 23)];
    assert!(
        led.iter()
            .all(|(line, step)| history.contains(*line, *step))
    );
    assert!(
        abandoned
            .iter()
            .all(|(line, step)| !history.contains(*line, *step))
    );
    assert_eq!(history.forks().collect::<Vec<_>>(), [(1, 22), (0, 20)]);
}

#[test]
fn where_nothing_says_where_a_line_began_no_older_step_counts_as_abandoned() {
    let store = memory();
    save_all(&launch(&store), &[10, 20]);
    save_all(&back_to(&store, 10), &[11, 12]);
    save_all(&back_to(&store, 11), &[13]);
    store.delete(&line_key(1)).unwrap();
    // The first step of the line knows.
    let history = history_of(&store);
    assert!(history.contains(0, 10) && !history.contains(0, 20));
    assert!(history.contains(1, 11) && !history.contains(1, 12));
    // If that is gone, too, nobody does.
    let history = History::read(store.as_ref(), [(2, 13, None)]).unwrap();
    assert!(history.contains(0, 20) && history.contains(2, 13));
}

#[test]
fn older_versions_are_kept_from_runs_with_more_than_one_line() {
    let store = memory();
    save_all(&launch(&store), &[10, 20]);
    save_all(&back_to(&store, 10), &[11]);
    let commit =
        |step| String::from_utf8(store.get(&crate::names::commit_key(step)).unwrap()).unwrap();
    assert!(
        commit(11).contains(r#""needs":["lines"]"#),
        "{}",
        commit(11)
    );
    assert!(!commit(20).contains("needs"));
}
