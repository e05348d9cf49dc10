//! Empty states, scalars, aliases, odd names, strided memory, values, and refusals.

use crate::common::{F32, Model, Specs, f32s, load_as, memory, one, quick, spec};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, IfCommitted, LoadOptions, SaveOptions, State, Strictness,
    Target, World,
};
use cairn_sharding::{Listed, Piece, TensorSpec};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn single(store: &Arc<dyn cairn_store::Store>) -> Checkpointer {
    Checkpointer::with_options(store.clone(), World::single(), quick())
}

#[test]
fn an_empty_state_is_a_checkpoint() {
    let store = memory();
    let run = single(&store);
    run.save(0, &State::new(0), &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    let latest = run.latest().unwrap();
    assert_eq!(latest.checkpoint.step(), 0);
    assert!(latest.checkpoint.manifest().layout.is_empty());
}

#[test]
fn values_come_back_shared_and_by_rank() {
    let store = memory();
    Model::on("dp=2,tp=2", 4).save_ok(&store, 4);
    let checkpoint = Checkpoint::open(store, 4).unwrap();
    assert_eq!(checkpoint.values()["lr"], 0.1);
    assert_eq!(checkpoint.rank_values(3).unwrap().unwrap()["rng"][0], 3);
    assert_eq!(checkpoint.rank_values(4).unwrap(), None);
}

#[test]
fn names_of_any_kind_are_kept() {
    let mut specs = Specs::new();
    for name in [
        "größe 🪨/…\"\\",
        "a@0:1,0:2",
        &"n".repeat(4096),
        " ",
        "../../etc/passwd",
        "COMMIT",
    ] {
        specs.insert(name.to_string(), spec("tp=2", "f32[3@tp, 2]"));
    }
    let store = memory();
    let model = Model::new(specs, 1);
    model.save_ok(&store, 1);
    model.assert_loads(&Checkpoint::open(store, 1).unwrap());
}

#[test]
fn values_that_no_reader_would_take_are_refused() {
    let nested = |levels| (0..levels).fold(json!(7), |value, _| json!([value]));
    for (levels, is_saved) in [(100, true), (101, false)] {
        let store = memory();
        let run = single(&store);
        let mut state = State::new(0);
        state.value("config", nested(levels));
        let saved = run.save(1, &state, &SaveOptions::default());
        let saved = saved.map_err(|error| error.to_string());
        assert_eq!(saved.is_ok(), is_saved, "{levels}: {saved:?}");
        match saved {
            Ok(saving) => {
                saving.wait().unwrap();
                let checkpoint = run.latest().unwrap().checkpoint;
                assert_eq!(checkpoint.values()["config"], nested(levels));
            }
            Err(error) => assert!(error.contains("config"), "{error}"),
        }
    }
}

#[test]
fn names_no_file_can_hold_are_refused() {
    let spec = spec("single", "f32[1]");
    let bytes = [0; 4];
    for name in ["", "__metadata__", &"n".repeat(4097)] {
        let mut state = State::new(0);
        assert!(matches!(
            state.tensor(name, &spec, &bytes),
            Err(Error::State { .. })
        ));
    }
}

#[test]
fn a_tensor_with_the_name_of_a_piece_is_refused() {
    let store = memory();
    let specs: Specs = [
        ("a".to_string(), spec("tp=2", "f32[4@tp]")),
        ("a@0:2".to_string(), spec("tp=2", "f32[1]")),
    ]
    .into();
    for result in Model::new(specs, 1).save(&store, 1, &SaveOptions::default()) {
        let error = result.unwrap_err().to_string();
        let expected = "`a@0:2` is what a piece of tensor `a` is called";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_name_that_clashes_on_another_stage_is_refused_at_the_commit() {
    let store = memory();
    let specs: Specs = [
        ("a".to_string(), spec("pp=2", "f32[4 | at(pp=0)]")),
        ("a@0:2".to_string(), spec("pp=2", "f32[1 | at(pp=1)]")),
    ]
    .into();
    for result in Model::new(specs, 1).save(&store, 1, &SaveOptions::default()) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("a piece of tensor `a`"), "{error}");
    }
    assert!(Checkpoint::open(store, 1).is_err());
}

#[test]
fn plain_numbers_come_back_bit_for_bit() {
    let store = memory();
    let run = single(&store);
    let numbers = [
        0.000_423_209_170_872_713_24,
        1e-300,
        0.1 + 0.2,
        f64::MIN_POSITIVE,
    ];
    let mut state = State::new(0);
    state.value("numbers", serde_json::json!(numbers));
    run.save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    let checkpoint = run.open(1).unwrap();
    for (index, number) in numbers.iter().enumerate() {
        let loaded = checkpoint.values()["numbers"][index].as_f64().unwrap();
        assert_eq!(loaded.to_bits(), number.to_bits());
    }
}

#[test]
fn an_empty_listed_tensor_is_refused_instead_of_vanishing() {
    let spec = TensorSpec::new(F32, vec![0, 4], Listed::new([].into())).unwrap();
    let error = State::new(0)
        .tensor("t", &spec, &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("`t` is empty and listed"), "{error}");
}

#[test]
fn pieces_that_end_inside_a_byte_are_refused_before_anything_is_written() {
    let store = memory();
    // Three four-bit elements of each row: a reader of the whole tensor would need half bytes.
    let (halves, bytes) = (spec("tp=2", "f4[4, 6@tp]"), [0; 6]);
    let mut state = State::new(0);
    state.tensor("t", &halves, &bytes).unwrap();
    let world = World::new(0, 2, "halves").unwrap().unique();
    let run = Checkpointer::with_options(store.clone(), world, quick());
    let error = run
        .save(1, &state, &SaveOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("begins or ends inside a byte as f4"),
        "{error}"
    );
    let whole = Model::new(one("t", spec("tp=2", "f4[4, 8@tp]")), 1);
    whole.save_ok(&store, 2);
    let target = one("t", spec("single", "f4[4, 8]"));
    whole.assert_loads_as(&Checkpoint::open(store, 2).unwrap(), &target);
}

#[test]
fn tied_tensors_are_stored_once_and_load_by_both_names() {
    let store = memory();
    let shared = f32s(&[1.0, 2.0, 3.0]);
    let spec = spec("single", "f32[3]");
    let mut state = State::new(0);
    state.tensor("wte", &spec, &shared).unwrap();
    state.tensor("lm_head", &spec, &shared).unwrap();
    let run = single(&store);
    let report = run
        .save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(report.len_bytes, 4096 + 12);
    let checkpoint = run.open(1).unwrap();
    assert_eq!(checkpoint.manifest().layout.aliases()["wte"], "lm_head");
    let (mut head, mut embedding) = (vec![0; 12], vec![0; 12]);
    let targets = vec![
        Target::new("lm_head", &spec, 0, &mut head).unwrap(),
        Target::new("wte", &spec, 0, &mut embedding).unwrap(),
    ];
    checkpoint.load(targets, &LoadOptions::default()).unwrap();
    assert_eq!((&head, &embedding), (&shared, &shared));
}

#[test]
fn strided_memory_is_saved_and_loaded_in_place() {
    let store = memory();
    let spec = spec("single", "f32[2, 3]");
    // A transposed matrix inside a larger buffer: element (i, j) lies at i + 4 j.
    let buffer = f32s(&[0.0, 3.0, 9.0, 9.0, 1.0, 4.0, 9.0, 9.0, 2.0, 5.0]);
    let mut state = State::new(0);
    state.strided_tensor("t", &spec, &buffer, &[1, 4]).unwrap();
    let run = single(&store);
    run.save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    let mut plain = vec![0; 24];
    let checkpoint = run.open(1).unwrap();
    let target = Target::new("t", &spec, 0, &mut plain).unwrap();
    checkpoint
        .load(vec![target], &LoadOptions::default())
        .unwrap();
    assert_eq!(plain, f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let mut back = f32s(&[9.0; 10]);
    let target = Target::strided("t", &spec, 0, &mut back, &[1, 4]).unwrap();
    checkpoint
        .load(vec![target], &LoadOptions::default())
        .unwrap();
    assert_eq!(back, buffer);
}

#[test]
fn memory_of_the_wrong_length_is_refused_with_both_numbers() {
    let spec = spec("tp=2", "f32[5@tp, 2]");
    let error = State::new(1)
        .tensor("w", &spec, &[0; 3])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has 3 bytes in memory") && error.contains("takes 16"),
        "{error}"
    );
}

#[test]
fn partial_results_are_refused() {
    let store = memory();
    let spec = spec("dp=1", "f32[2 | sum(dp)]");
    let bytes = [0; 8];
    let mut state = State::new(0);
    state.tensor("grad", &spec, &bytes).unwrap();
    let error = single(&store)
        .save(1, &state, &SaveOptions::default())
        .unwrap_err();
    assert!(error.to_string().contains("reduce it before saving"));
}

#[test]
fn a_committed_step_is_refused_and_replaced_only_on_request() {
    let store = memory();
    let (old, new) = (Model::on("tp=2", 1), Model::on("tp=2", 2));
    old.save_ok(&store, 9);
    for result in new.save(&store, 9, &SaveOptions::default()) {
        assert!(matches!(
            *result.unwrap_err(),
            Error::StepTaken { step: 9, .. }
        ));
    }
    old.assert_loads(&Checkpoint::open(store.clone(), 9).unwrap());
    let replace = SaveOptions {
        if_committed: IfCommitted::Replace,
        ..SaveOptions::default()
    };
    for result in new.save(&store, 9, &replace) {
        result.unwrap();
    }
    new.assert_loads(&Checkpoint::open(store, 9).unwrap());
}

#[test]
fn all_key_problems_are_reported_at_once_with_near_misses() {
    let store = memory();
    Model::on("tp=2", 1).save_ok(&store, 1);
    let checkpoint = Checkpoint::open(store, 1).unwrap();
    let mut specs = Model::on("tp=2", 1).specs;
    specs.remove("optim.step");
    let renamed = specs.remove("layers.0.norm").unwrap();
    specs.insert("layers.0.nrom".into(), renamed);
    specs.insert("embed".into(), spec("tp=2", "bf16[38@tp, 16]"));
    let error = load_as(&checkpoint, &specs, &LoadOptions::default()).unwrap_err();
    let Error::Keys(problems) = &error else {
        panic!("{error}")
    };
    assert_eq!(problems.missing[0].near.as_deref(), Some("layers.0.norm"));
    assert_eq!(problems.unexpected, ["layers.0.norm", "optim.step"]);
    assert_eq!(problems.mismatched[0].stored, "bf16[37, 16]");
    assert!(
        error
            .hint()
            .unwrap()
            .contains("did you mean `layers.0.norm`")
    );
}

#[test]
fn a_lenient_load_leaves_what_does_not_fit_untouched() {
    let store = memory();
    let model = Model::new(one("a", spec("single", "f32[2]")), 1);
    model.save_ok(&store, 1);
    let checkpoint = Checkpoint::open(store, 1).unwrap();
    let specs: Specs = [
        ("a".to_string(), spec("single", "f32[2]")),
        ("b".to_string(), spec("single", "f32[2]")),
    ]
    .into();
    let lenient = LoadOptions {
        strictness: Strictness::LENIENT,
        ..LoadOptions::default()
    };
    let (report, memory) = load_as(&checkpoint, &specs, &lenient).unwrap();
    assert_eq!(memory[&("a".to_string(), 0)], model.whole["a"]);
    assert_eq!(memory[&("b".to_string(), 0)], [0xAA; 8]);
    assert_eq!(report.problems.missing.len(), 1);
}

#[test]
fn listed_pieces_with_a_hole_do_not_commit() {
    let store = memory();
    let piece = |text: &str| vec![text.parse::<Piece>().unwrap()];
    let listed = Listed::new([(0, piece("0:2")), (1, piece("3:1"))].into());
    let spec = TensorSpec::new(F32, vec![4], listed).unwrap();
    for result in Model::new(one("t", spec), 1).save(&store, 1, &SaveOptions::default()) {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("nobody holds the elements `2:1` of tensor `t`"),
            "{error}"
        );
    }
    assert!(matches!(
        Checkpoint::open(store, 1),
        Err(Error::Incomplete { .. })
    ));
}

#[test]
fn ranks_that_describe_a_tensor_differently_do_not_commit() {
    let store = memory();
    let (a, b) = (
        Model::new(one("t", spec("tp=2", "f32[4@tp]")), 1),
        Model::new(one("t", spec("tp=2", "f32[6@tp]")), 1),
    );
    let worlds = World::threads(2);
    let results = std::thread::scope(|scope| {
        let first =
            scope.spawn(|| a.save_rank(&store, worlds[0].clone(), 1, &SaveOptions::default()));
        let second =
            scope.spawn(|| b.save_rank(&store, worlds[1].clone(), 1, &SaveOptions::default()));
        [first.join().unwrap(), second.join().unwrap()]
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("writers 1 describe the tensors they hold otherwise"),
            "{error}"
        );
    }
}

#[test]
fn the_state_may_change_as_soon_as_save_returns() {
    let store = memory();
    let spec = spec("single", "u8[30000000]");
    let run = single(&store);
    let mut weights = vec![1_u8; 30_000_000];
    for step in 1..4_u8 {
        let mut state = State::new(0);
        state.tensor("w", &spec, &weights).unwrap();
        let saving = run
            .save(u64::from(step), &state, &SaveOptions::default())
            .unwrap();
        weights.fill(step + 1);
        saving.wait().unwrap();
        let mut loaded = vec![0; 30_000_000];
        let target = Target::new("w", &spec, 0, &mut loaded).unwrap();
        run.open(u64::from(step))
            .unwrap()
            .load(vec![target], &LoadOptions::default())
            .unwrap();
        assert!(loaded.iter().all(|byte| *byte == step), "step {step}");
    }
}

#[test]
fn bounded_staging_memory_still_saves_everything() {
    let store = memory();
    let spec = spec("single", "u8[60000000]");
    let mut options = quick();
    options.staging_bytes = Some(16 << 20);
    let run = Checkpointer::with_options(store.clone(), World::single(), options);
    let weights = crate::common::bytes("w", 1, 60_000_000);
    let mut state = State::new(0);
    state.tensor("w", &spec, &weights).unwrap();
    run.save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(run.staging_bytes(), 16 << 20);
    Model::new(one("w", spec), 1).assert_loads(&run.open(1).unwrap());
}

#[test]
fn a_rank_that_never_hears_of_the_others_writes_the_same_file() {
    let model = Model::on("dp=2,tp=2", 1);
    let rank = |store: &Arc<dyn cairn_store::Store>, rank: usize, patience: Duration| {
        let mut options = quick();
        options.commit_timeout = patience;
        let world = World::new(rank, 4, "alone").unwrap().unique();
        let run = Checkpointer::with_options(store.clone(), world, options);
        let local = model.local(rank);
        run.save(1, &model.state(rank, &local), &SaveOptions::default())
            .unwrap()
            .wait()
    };
    let (together, alone) = (memory(), memory());
    std::thread::scope(|scope| {
        for index in 0..4 {
            let (rank, store) = (&rank, &together);
            scope.spawn(move || rank(store, index, Duration::from_secs(20)).unwrap());
        }
    });
    let error = rank(&alone, 2, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(&*error, Error::WritersMissing { missing, .. } if *missing == [0, 1, 3]));
    let file = |store: &Arc<dyn cairn_store::Store>| {
        let objects = store.list("").unwrap();
        let mut keys = objects.iter().map(|object| &object.key);
        let key = keys.find(|key| key.ends_with("/00002.safetensors"));
        store.get(key.unwrap()).unwrap()
    };
    assert_eq!(file(&alone), file(&together));
}
