//! What is saved on one layout goes on, on any other, as if nothing had happened.

use crate::common::{Layout, Rank, TIED, Values, assert_parts_of, on};
use cairn_arena::{Error, Loaded, Scope, Stage, UPDATES};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, LoadOptions, SaveOptions, SharedSource, Source, State, World,
};
use cairn_sharding::Mesh;
use cairn_store::Memory;
use cairn_tensor::DType;
use std::sync::Arc;

const LAYOUTS: [Layout; 6] = [
    layout("dp=1,pp=1,tp=1", Stage::Nothing, DType::F32),
    layout("dp=3,pp=1,tp=1", Stage::Optimizer, DType::Bf16),
    layout("dp=2,pp=2,tp=1", Stage::Parameters, DType::F32),
    layout("tp=2,dp=2,pp=1", Stage::Parameters, DType::Bf16),
    layout("pp=3,dp=1,tp=2", Stage::Gradients, DType::Bf16),
    layout("dp=4,pp=1,tp=1", Stage::Gradients, DType::F32),
];

const fn layout(mesh: &'static str, stage: Stage, dtype: DType) -> Layout {
    Layout {
        mesh,
        stage,
        dtype,
        accumulation: 1,
    }
}

/// Two steps on a layout, saved.
fn saved(layout: Layout) -> Checkpoint {
    saved_then(layout, |_| Ok(()))
}

/// Two steps on a layout, saved after something else has happened to the memory.
fn saved_then(
    layout: Layout,
    meanwhile: impl Fn(&mut Rank) -> Result<(), Error> + Sync,
) -> Checkpoint {
    let store = Arc::new(Memory::new());
    let mesh: Mesh = layout.mesh.parse().unwrap();
    let worlds = World::threads(mesh.size());
    on(layout, |rank| {
        rank.train(0..2)?;
        let own = rank.world.rank();
        let mut state = State::new(own);
        rank.arena.add_to(&rank.mesh, &mut state)?;
        meanwhile(rank)?;
        let run = Checkpointer::new(store.clone(), worlds[own].clone());
        let saving = run.save(2, &state, &SaveOptions::default())?;
        saving.wait().unwrap();
        Ok(())
    });
    Checkpoint::open(store, 2).unwrap()
}

fn load(rank: &mut Rank, source: &SharedSource, scope: Scope) -> Result<Loaded, Error> {
    let mesh = rank.mesh.clone();
    let options = LoadOptions::default();
    rank.arena.load(&mesh, source, scope, &options)
}

/// Two more steps on a layout, from a checkpoint.
fn resumed(layout: Layout, checkpoint: &Arc<Checkpoint>) -> Vec<Values> {
    let source: SharedSource = checkpoint.clone();
    on(layout, |rank| {
        load(rank, &source, Scope::Everything)?;
        let updates = checkpoint.values()[UPDATES].as_u64();
        rank.arena.set_updates(updates.unwrap());
        rank.train(2..4)?;
        rank.values()
    })
}

fn uninterrupted(dtype: DType) -> Values {
    let mut ranks = on(Layout::single(dtype), |rank| {
        rank.train(0..4)?;
        rank.values()
    });
    ranks.remove(0)
}

#[test]
fn a_run_goes_on_as_if_never_interrupted_on_every_other_layout() {
    let expected = [DType::F32, DType::Bf16].map(uninterrupted);
    for from in LAYOUTS {
        let checkpoint = Arc::new(saved(from));
        for to in LAYOUTS {
            let ranks = resumed(to, &checkpoint);
            let whole = &expected[usize::from(to.dtype == DType::Bf16)];
            assert_parts_of(whole, &ranks, &format!("{from} → {to}"));
        }
    }
}

#[test]
fn steps_that_are_made_before_all_is_captured_do_not_change_what_is_saved() {
    for from in LAYOUTS {
        let checkpoint = Arc::new(saved_then(from, |rank| rank.train(2..4).map(|_| ())));
        let ranks = resumed(from, &checkpoint);
        assert_parts_of(&uninterrupted(from.dtype), &ranks, &from);
    }
}

#[test]
fn a_load_while_state_is_saved_does_not_change_it() {
    let other: SharedSource = Arc::new(saved(LAYOUTS[0]));
    let from = LAYOUTS[3];
    let checkpoint = Arc::new(saved_then(from, |rank| {
        rank.train(7..8)?;
        load(rank, &other, Scope::Parameters).map(|_| ())
    }));
    let ranks = resumed(from, &checkpoint);
    assert_parts_of(&uninterrupted(from.dtype), &ranks, &from);
}

#[test]
fn a_checkpoint_has_each_tensor_once_in_the_layout_that_trained_it() {
    let checkpoint = saved(layout("dp=2,pp=2,tp=2", Stage::Optimizer, DType::Bf16));
    let texts = [
        ("up.weight", "bf16[6@tp, 4 | at(pp=0)]"),
        (
            "optimizer.master.up.weight",
            "f32[6@tp, 4 | flat(dp) | at(pp=0)]",
        ),
        (
            "optimizer.exp_avg.down.weight",
            "f32[4, 6@tp | flat(dp) | at(pp=0)]",
        ),
        ("optimizer.exp_avg_sq.one", "f32[1 | flat(dp) | at(pp=1)]"),
        (TIED, "bf16[5@tp, 3 | at(pp=0)]"),
        ("scale", "bf16[ | at(pp=0)]"),
    ];
    let layout = &checkpoint.manifest().layout;
    for (name, text) in texts {
        assert_eq!(
            layout.spec(layout.find(name).unwrap()).to_string(),
            text,
            "{name}"
        );
    }
    assert_eq!(checkpoint.names().len(), 7 * 4);
    assert_eq!(checkpoint.values()[UPDATES], 2);
}

#[test]
fn a_model_without_an_optimizer_starts_a_run_anew() {
    let checkpoint = saved(LAYOUTS[0]);
    let source: SharedSource = Arc::new(checkpoint);
    let reports = on(LAYOUTS[3], |rank| {
        rank.train(5..6)?;
        let loaded = load(rank, &source, Scope::Parameters)?;
        assert_eq!(rank.arena.updates(), 0);
        rank.train(0..1)?;
        Ok((loaded.cast.len(), loaded.widened.len(), rank.values()?))
    });
    let fresh = on(LAYOUTS[3], |rank| {
        load(rank, &source, Scope::Parameters)?;
        rank.train(0..1)?;
        rank.values()
    });
    for ((cast, widened, values), fresh) in reports.into_iter().zip(fresh) {
        assert_eq!(
            (cast, widened),
            (8, 8),
            "eight in three buckets, one of them twice"
        );
        assert_eq!(values, fresh);
    }
}

#[test]
fn a_checkpoint_of_another_optimizer_is_refused_with_all_that_is_missing() {
    let source: SharedSource = Arc::new(saved(LAYOUTS[0]));
    let mut arena = crate::steps::arena(
        &[("scale", 1), ("unknown", 1)],
        crate::common::options(Stage::Nothing, DType::F32),
    )
    .unwrap();
    let options = LoadOptions::default();
    let mesh = Mesh::single();
    let error = arena.load(&mesh, &source, Scope::Everything, &options);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("unknown") && text.contains("scale"), "{text}");
}

#[test]
fn a_mesh_that_is_not_that_of_the_groups_is_refused() {
    on(LAYOUTS[1], |rank| {
        let mesh = Mesh::new([("dp", 2)]).unwrap();
        let error = rank.arena.add_to(&mesh, &mut State::new(0)).unwrap_err();
        assert!(matches!(
            error,
            Error::Axis {
                axis: "dp",
                expected: 3,
                actual: 2
            }
        ));
        Ok(())
    });
}
