//! A tensor that follows from another is not stored, and is read as if it were: on any layout, bit for bit, damage included.

use crate::common::{Model, Specs, checkpointer, load_as, memory, quick, spec, together};
use cairn_checkpoint::{
    Checkpoint, Error, LoadOptions, ModelSource, RewriteOptions, SaveOptions, Source, State,
    Strictness, World, chain, export_hf,
};
use cairn_formats::hf::open_folder;
use cairn_store::{PutMode, Store};
use cairn_tensor::{DType, Overflow, cast};
use std::sync::Arc;

/// Weights, and the masters they are casts of; the rest is there to lie before, between and behind the masters.
const WEIGHTS: [(&str, DType, &str); 5] = [
    ("model.embed", DType::Bf16, "optim.embed.master"),
    ("model.head", DType::Bf16, "optim.embed.master"),
    ("model.half", DType::F16, "optim.half.master"),
    ("model.scale", DType::Bf16, "optim.scale.master"),
    ("model.empty", DType::Bf16, "optim.empty.master"),
];

fn masters(mesh: &str, flat: &str) -> Model {
    let texts = [
        ("optim.embed.master", format!("f32[300@tp, 257{flat}]")),
        ("optim.half.master", format!("f32[5, 70@tp{flat}]")),
        ("optim.scale.master", "f32[]".into()),
        ("optim.empty.master", "f32[0, 4]".into()),
        ("optim.between", "f32[3]".into()),
        ("optim.count", "i64[]".into()),
        ("other", "u8[13]".into()),
    ];
    let specs = texts.map(|(name, text)| (name.to_string(), spec(mesh, &text)));
    let mut model = Model::new(specs.into(), 1);
    for (name, whole) in &mut model.whole {
        if name.ends_with("master") {
            // Every exponent that a weight may have, and some that overflow f16.
            for (index, value) in whole.chunks_exact_mut(4).enumerate() {
                let scale = 10f32.powi(i32::try_from(index % 12).unwrap() - 6);
                let value: &mut [u8; 4] = value.try_into().unwrap();
                let small = f32::from(u16::from_le_bytes([value[0], value[1]]));
                *value = ((small - 3e4) * scale).to_le_bytes();
            }
        }
    }
    model
}

/// The model with its weights, as it would be if nothing were derived.
fn complete(masters: &Model) -> Model {
    let mut model = masters.clone();
    for (name, dtype, of) in WEIGHTS {
        let source = &masters.whole[of];
        let mut weight = vec![0; source.len() / 2];
        cast(DType::F32, dtype, source, &mut weight, Overflow::Native).unwrap();
        model.whole.insert(name.into(), weight);
        let text = masters.specs[of].to_string();
        let text = text.replacen("f32", dtype.name(), 1);
        let mesh = masters.specs[of].sharding().unwrap().mesh().to_string();
        model.specs.insert(name.into(), spec(&mesh, &text));
    }
    model
}

fn save(masters: &Model, store: &Arc<dyn Store>) -> Checkpoint {
    let worlds = World::threads(masters.world());
    let ranks = worlds
        .iter()
        .map(|world| checkpointer(store, world, &quick()));
    let ranks: Vec<_> = ranks.collect();
    let results = together(&ranks, |run, rank| {
        let local = masters.local(rank);
        let mut state = masters.state(rank, &local);
        for (name, dtype, of) in WEIGHTS {
            state.derive(name, dtype, of).unwrap();
        }
        run.save(1, &state, &SaveOptions::default())?
            .wait()
            .map_err(|error| Error::State {
                name: String::new(),
                reason: chain(&error),
            })
    });
    for result in results {
        result.unwrap();
    }
    Checkpoint::open(store.clone(), 1).unwrap()
}

#[test]
fn derived_tensors_load_on_any_layout_as_if_they_were_stored() {
    for (mesh, flat) in [
        ("tp=1", ""),
        ("tp=3", ""),
        ("dp=2,tp=2", " | flat(dp)"),
        ("dp=4,tp=1", ""),
    ] {
        let saved = masters(mesh, flat);
        let whole = complete(&saved);
        let checkpoint = save(&saved, &memory());
        assert_eq!(
            checkpoint.manifest().layout.len(),
            saved.specs.len(),
            "nothing more is stored"
        );
        for target in ["tp=1", "tp=4", "dp=2,tp=3"] {
            whole.assert_loads_as(&checkpoint, &complete(&masters(target, "")).specs);
        }
        whole.assert_whole(&checkpoint);
    }
}

#[test]
fn peers_load_derived_tensors_together() {
    let (saved, store) = (masters("tp=3", ""), memory());
    save(&saved, &store);
    let target = complete(&masters("dp=2,tp=2", "")).specs;
    let reports = crate::together::assert_loads(&complete(&saved), &store, &target);
    assert!(reports.iter().any(|report| report.received_bytes > 0));
}

#[test]
fn two_names_of_one_derived_tensor_are_aliases() {
    let checkpoint = save(&masters("tp=1", ""), &memory());
    let aliases: Vec<_> = checkpoint.aliases().into_iter().collect();
    assert_eq!(aliases, [("model.head".into(), "model.embed".into())]);
    let names = checkpoint.names();
    assert!(names.is_sorted() && names.contains(&"model.head"));
    let found = checkpoint.find("model.half").unwrap();
    assert_eq!((found.dtype, found.shape), (DType::F16, vec![5, 70]));
}

#[test]
fn a_derived_tensor_is_exported_like_any_other() {
    let saved = masters("dp=2,tp=2", " | flat(dp)");
    let checkpoint = save(&saved, &memory());
    let out = memory();
    let names = ["model.embed", "model.scale"];
    export_hf(
        &checkpoint,
        &out,
        &names,
        1 << 30,
        &RewriteOptions::default(),
    )
    .unwrap();
    let model = ModelSource::new(out.clone(), open_folder(out.as_ref()).unwrap());
    let mut target: Specs = complete(&masters("tp=2", "")).specs;
    target.retain(|name, _| names.contains(&name.as_str()));
    complete(&saved).assert_loads_as(&model, &target);
}

#[test]
fn a_flipped_bit_in_the_master_is_found_when_the_weight_is_loaded() {
    let saved = masters("tp=1", "");
    let store = memory();
    let checkpoint = save(&saved, &store);
    let key = checkpoint.data_key(0);
    let mut bytes = store.get(&key).unwrap();
    let master = &saved.whole["optim.embed.master"];
    let at = bytes.windows(64).position(|window| *window == master[..64]);
    bytes[at.unwrap() + master.len() / 2] ^= 1;
    store.put(&key, &bytes, PutMode::Replace).unwrap();
    let mut target = complete(&saved).specs;
    target.retain(|name, _| name == "model.embed");
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    let error = load_as(&checkpoint, &target, &options).unwrap_err();
    assert!(error.is_damage(), "{}", chain(&error));
    let text = chain(&error);
    assert!(
        text.contains("optim.embed.master") && text.contains(&key),
        "{text}"
    );
}

#[test]
fn ranks_that_derive_differently_do_not_commit() {
    let saved = masters("dp=2,tp=1", "");
    let store = memory();
    let worlds = World::threads(2);
    let ranks = worlds
        .iter()
        .map(|world| checkpointer(&store, world, &quick()));
    let ranks: Vec<_> = ranks.collect();
    let results = together(&ranks, |run, rank| {
        let local = saved.local(rank);
        let mut state = saved.state(rank, &local);
        if rank == 1 {
            state
                .derive("model.scale", DType::Bf16, "optim.scale.master")
                .unwrap();
        }
        run.save(1, &state, &SaveOptions::default()).unwrap().wait()
    });
    for result in results {
        let error = result.unwrap_err();
        assert!(chain(&*error).contains("disagree"), "{error}");
    }
}

#[test]
fn nothing_is_derived_twice_or_from_what_has_another_type() {
    let saved = masters("tp=1", "");
    let local = saved.local(0);
    let mut state: State = saved.state(0, &local);
    state
        .derive("half", DType::F16, "optim.half.master")
        .unwrap();
    for (name, dtype, of, reason) in [
        ("half", DType::F16, "optim.half.master", "given twice"),
        ("other", DType::F16, "optim.half.master", "given twice"),
        ("x", DType::F16, "other", "which is u8"),
        ("x", DType::F64, "optim.half.master", "cannot be the f64"),
        ("", DType::F16, "optim.half.master", "not a name"),
    ] {
        let error = state.clone().derive(name, dtype, of).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}
