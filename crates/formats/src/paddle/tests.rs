//! Files that Paddle 3.3 wrote (see `fixtures/paddle/generate.py`), and files that lie.

use super::{pdiparams, pdparams, program};
use crate::model::{Encoding, Model};
use crate::safetensors::{Entry, encode};
use crate::{Error, open, open_file};
use cairn_store::{Memory, PutMode, Store};
use cairn_tensor::DType;
use proptest::prelude::*;
use serde_json::json;

macro_rules! fixture {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../../fixtures/paddle/", $name)).as_slice(),
        )
    };
}

const FILES: &[(&str, &[u8])] = &[
    fixture!("layer2.pdparams"),
    fixture!("layer3.pdparams"),
    fixture!("layer4.pdparams"),
    fixture!("nested.pdparams"),
    fixture!("cut.pdparams"),
    fixture!("step.pdopt"),
    fixture!("program.json"),
    fixture!("program.pdiparams"),
    fixture!("old.pdmodel"),
    fixture!("old.pdiparams"),
];

const FLEX: &[(&str, &[u8])] = &[
    ("0.metadata", fixture!("flex/0.metadata").1),
    ("0_0.distcp", fixture!("flex/0_0.distcp").1),
    ("1_0.distcp", fixture!("flex/1_0.distcp").1),
];

const FLEX_SAFETENSORS: &[(&str, &[u8])] = &[
    ("0.metadata", fixture!("flex_safetensors/0.metadata").1),
    (
        "0_0.safetensors",
        fixture!("flex_safetensors/0_0.safetensors").1,
    ),
    (
        "1_0.safetensors",
        fixture!("flex_safetensors/1_0.safetensors").1,
    ),
];

fn store(files: &[(&str, &[u8])]) -> Memory {
    let store = Memory::new();
    for (key, bytes) in files {
        store.put(key, bytes, PutMode::Create).unwrap();
    }
    store
}

/// The elements of a tensor of four-byte floats, in row-major order, read piece by piece.
fn floats(store: &dyn Store, model: &Model, name: &str) -> Vec<f32> {
    let tensor = &model.tensors[name];
    assert_eq!(tensor.dtype, DType::F32);
    let mut elements = vec![f32::NAN; tensor.shape.iter().product()];
    for piece in &tensor.pieces {
        assert_eq!(piece.encoding, Encoding::RowMajor);
        let mut bytes = vec![0; 4 * piece.piece.element_count()];
        let reader = store.reader(&model.files[piece.file].key).unwrap();
        reader.read_at(piece.offset, &mut bytes).unwrap();
        let region = &piece.piece.region;
        // All fixtures are cut along their first dim, so a box is a run of elements.
        let row: usize = tensor.shape.iter().skip(1).product();
        let first = region.offset.first().map_or(0, |first| first * row);
        let first = first + piece.piece.flat.as_ref().map_or(0, |flat| flat.start);
        for (index, element) in bytes.chunks_exact(4).enumerate() {
            elements[first + index] = f32::from_le_bytes(element.try_into().unwrap());
        }
    }
    elements
}

fn counting(len: u8) -> Vec<f32> {
    (0..len).map(f32::from).collect()
}

#[test]
fn a_layer_has_its_structured_names_and_its_table() {
    let store = store(FILES);
    for key in ["layer3.pdparams", "layer4.pdparams"] {
        let model = open_file(&store, key).unwrap();
        let names = [
            "linear.bias",
            "linear.weight",
            "norm._mean",
            "norm._variance",
        ];
        assert_eq!(model.names()[..4], names);
        assert_eq!(model.tensors["linear.weight"].shape, [3, 2]);
        assert_eq!(floats(&store, &model, "linear.weight"), counting(6));
        assert_eq!(
            model.values[super::pdparams::NAME_TABLE]["linear.weight"],
            "linear_0.w_0"
        );
    }
}

#[test]
fn arrays_written_as_text_are_refused_with_advice() {
    let error = open_file(&store(FILES), "layer2.pdparams").unwrap_err();
    assert!(error.to_string().contains("protocol 2"), "{error}");
    assert!(error.hint().unwrap().contains("protocol 4"));
}

#[test]
fn an_optimizer_has_nested_master_weights_and_a_schedule() {
    let model = open_file(&store(FILES), "step.pdopt").unwrap();
    assert_eq!(
        model.names(),
        [
            "linear_0.b_0_velocity_0",
            "linear_0.w_0_velocity_0",
            "master_weights.linear_0.w_0"
        ]
    );
    assert_eq!(model.values["LR_Scheduler"]["last_epoch"], 0);
}

#[test]
fn nested_containers_are_joined_with_dots_and_plain_branches_are_values() {
    let store = store(FILES);
    let model = open_file(&store, "nested.pdparams").unwrap();
    let names = ["empty", "layers.0.w", "layers.1", "scalar", "turned"];
    assert_eq!(model.names(), names);
    assert_eq!(model.tensors["layers.0.w"].dtype, DType::Bf16);
    assert_eq!(model.tensors["empty"].shape, [0, 2]);
    assert_eq!(floats(&store, &model, "scalar"), [2.5]);
    let turned = &model.tensors["turned"];
    assert_eq!(turned.pieces[0].encoding, Encoding::Strided(vec![1, 2]));
    assert_eq!(
        model.values["note"],
        json!({"epoch": 3, "rates": {"$tuple": [0.1, null]}})
    );
}

#[test]
fn an_array_that_was_cut_is_joined() {
    let store = store(FILES);
    let model = open_file(&store, "cut.pdparams").unwrap();
    assert_eq!(model.names(), ["big"]);
    assert_eq!(model.tensors["big"].shape, [2, 3]);
    assert_eq!(floats(&store, &model, "big"), counting(6));
}

#[test]
fn parameters_of_a_program_have_the_names_in_it() {
    let files = store(FILES);
    let model = open_file(&files, "program.pdiparams").unwrap();
    let weight = "linear_0.w_0";
    assert_eq!(model.tensors.len(), 6);
    assert_eq!(model.tensors[weight].shape, [3, 2]);
    assert_eq!(floats(&files, &model, weight), counting(6));
    assert_eq!(model.assets, ["program.json"]);
    let alone = store(&FILES[7..]);
    let error = open_file(&alone, "program.pdiparams").unwrap_err();
    assert!(error.to_string().contains("`program.json`"), "{error}");
}

#[test]
fn parameters_of_an_old_program_have_the_names_in_it() {
    let files = store(FILES);
    let model = open_file(&files, "old.pdiparams").unwrap();
    let names = [
        "linear_0.b_0",
        "linear_0.w_0",
        "linear_1.b_0",
        "linear_1.w_0",
    ];
    assert_eq!(model.names(), names);
    assert_eq!(model.tensors["linear_1.w_0"].shape, [4, 3]);
    assert_eq!(floats(&files, &model, "linear_1.w_0"), counting(12));
}

#[test]
fn a_program_of_a_newer_version_is_refused_by_name() {
    let program = String::from_utf8(FILES[6].1.to_vec()).unwrap();
    for (version, known) in [("4", true), ("1", true), ("5", false), ("-1", false)] {
        let text = program.replace("\"version\":4", &format!("\"version\":{version}"));
        let found = program::parameters("program.json", text.as_bytes());
        assert_eq!(found.is_ok(), known, "{version}");
    }
    let found = program::parameters("program.json", FILES[6].1).unwrap();
    assert_eq!(found["linear_0.w_0"].dtype, Some(DType::F32));
    assert!(program::is_program("program.json", FILES[6].1));
    assert!(!program::is_program("config.json", b"{}"));
}

#[test]
fn parameters_are_written_as_paddle_writes_them() {
    for (key, program, bytes) in [
        ("program.pdiparams", FILES[6], FILES[7].1),
        ("old.pdiparams", FILES[8], FILES[9].1),
    ] {
        let files = store(&[program, (key, bytes)]);
        let model = open_file(&files, key).unwrap();
        let mut written = Vec::new();
        for tensor in model.tensors.values() {
            written.extend(pdiparams::header(tensor.dtype, &tensor.shape).unwrap());
            let start = usize::try_from(tensor.pieces[0].offset).unwrap();
            let len = 4 * tensor.shape.iter().product::<usize>();
            written.extend(&bytes[start..start + len]);
        }
        assert_eq!(written, bytes);
    }
}

#[test]
fn parameters_that_do_not_fit_their_program_are_damage() {
    let parameters = FILES[7].1;
    for bytes in [
        &parameters[..parameters.len() - 1],
        &[parameters, &[0]].concat(),
    ] {
        let store = store(&[FILES[6], ("program.pdiparams", bytes)]);
        let error = open_file(&store, "program.pdiparams").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

#[test]
fn what_is_written_for_paddle_is_read() {
    let tensors: [(&str, DType, &[usize]); 4] = [
        ("a.w", DType::F32, &[2, 3]),
        ("b", DType::Bf16, &[]),
        ("c", DType::Bool, &[3]),
        ("d", DType::I64, &[0, 2]),
    ];
    let values = [("step".to_string(), json!({"at": [3, 0.5, null]}))].into();
    let frames = pdparams::frames(&tensors, &values).unwrap();
    let mut file = frames[0].clone();
    for ((_, dtype, shape), frame) in tensors.iter().zip(&frames[1..]) {
        let count = shape.iter().product::<usize>();
        file.extend((0..=255).take(dtype.len_bytes(count).unwrap()));
        file.extend(frame);
    }
    let store = store(&[("x.pdparams", &file)]);
    let model = open_file(&store, "x.pdparams").unwrap();
    assert_eq!(model.values, values);
    for (name, dtype, shape) in tensors {
        let tensor = &model.tensors[name];
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (dtype, shape));
        let bytes = crate::reading::bytes(&store, &model, name).unwrap();
        let counting: Vec<u8> = (0..=255).take(bytes.len()).collect();
        assert_eq!(bytes, counting, "{name}");
    }
    let odd: [(&str, DType, &[usize]); 1] = [("odd", DType::F8E4M3, &[2])];
    assert_eq!(pdparams::frames(&odd, &values).unwrap_err(), "odd");
}

#[test]
fn a_distributed_checkpoint_is_put_together_from_boxes_and_flat_ranges() {
    let files = store(FLEX);
    let model = open(&files).unwrap();
    assert_eq!(model.format, "paddle-flex");
    assert_eq!(model.names(), ["flat", "nested.same", "rows"]);
    assert_eq!(floats(&files, &model, "flat"), counting(15));
    assert_eq!(floats(&files, &model, "rows"), counting(15));
    let same = &model.tensors["nested.same"];
    assert_eq!((same.dtype, same.pieces.len()), (DType::Bf16, 1));
    let files = store(FLEX_SAFETENSORS);
    let model = open(&files).unwrap();
    assert_eq!(floats(&files, &model, "rows"), counting(15));
}

#[test]
fn metadata_of_older_versions_tells_shapes_by_the_pieces_alone() {
    let newer = FLEX[0].1;
    let at = newer.windows(12).position(|word| word == b"global_shape");
    let at = at.unwrap();
    let older = [&newer[..at], b"unknown_key_", &newer[at + 12..]].concat();
    let files = store(&[("0.metadata", &older), FLEX[1], FLEX[2]]);
    let model = open(&files).unwrap();
    assert_eq!(model.tensors["rows"].shape, [5, 3]);
    assert_eq!(floats(&files, &model, "flat"), counting(15));
}

#[test]
fn of_several_saves_the_newest_complete_one_is_opened() {
    let newer = [("7.metadata", FLEX_SAFETENSORS[0].1)];
    let half = [FLEX, &newer].concat();
    assert!(open(&store(&half)).unwrap().find("flat").is_some());
    let whole = [FLEX, &newer, &FLEX_SAFETENSORS[1..]].concat();
    assert!(open(&store(&whole)).unwrap().find("flat").is_none());
}

#[test]
fn a_distributed_checkpoint_without_its_files_never_finished() {
    for files in [&FLEX[1..], &FLEX[..2]] {
        let error = open(&store(files)).unwrap_err();
        assert!(matches!(error, Error::Unfinished { .. }), "{error}");
    }
}

fn safetensors(names: &[&str]) -> Vec<u8> {
    let entry = |(name, at): (&&str, u64)| Entry {
        name: (*name).into(),
        dtype: DType::F32,
        shape: vec![1],
        begin: 4 * at,
        end: 4 * at + 4,
    };
    let entries: Vec<Entry> = names.iter().zip(0..).map(entry).collect();
    let mut file = encode(&entries, &[("format", "np")], 8).unwrap();
    file.resize(file.len() + 4 * names.len(), 0);
    file
}

#[test]
fn a_unified_checkpoint_has_the_names_of_a_layer_and_its_optimizer() {
    let index = json!({"weight_map": {"fc.w/moment1_0": "optimizer-00001-of-00001.safetensors"}});
    let store = store(&[
        ("model-00001-of-00001.safetensors", &safetensors(&["fc.w"])),
        (
            "optimizer-00001-of-00001.safetensors",
            &safetensors(&["fc.w/moment1_0"]),
        ),
        (
            "optimizer.safetensors.index.json",
            index.to_string().as_bytes(),
        ),
        ("master_weights.safetensors", &safetensors(&["fc.w"])),
        (
            "scheduler.pdparams",
            b"\x80\x04}\x8c\x0alast_epochK\x07s.".as_slice(),
        ),
        ("config.json", b"{}"),
    ]);
    let model = open(&store).unwrap();
    assert_eq!(model.format, "paddle-unified");
    assert_eq!(
        model.names(),
        [
            "model.fc.w",
            "optim.state.fc.w.master_weight",
            "optim.state.fc.w.moment1_0"
        ]
    );
    let file = |name: &str| &model.files[model.tensors[name].pieces[0].file].key;
    assert_eq!(
        file("optim.state.fc.w.master_weight"),
        "master_weights.safetensors"
    );
    assert_eq!(model.values["optim.LR_Scheduler"], json!({"last_epoch": 7}));
    assert_eq!(model.assets, ["config.json"]);
}

#[test]
fn a_folder_with_one_file_of_parameters_is_that_file() {
    for key in ["model_state.pdparams", "other.pdparams"] {
        let store = store(&[(key, FILES[2].1), ("config.json", b"{}")]);
        let model = open(&store).unwrap();
        assert_eq!(model.tensors.len(), 6);
        assert_eq!(model.assets, ["config.json"]);
    }
}

#[test]
fn a_pickle_that_would_run_code_is_refused_by_name_wherever_it_lies() {
    let attack: &[u8] = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.";
    let refused = |result: Result<Model, Error>| match result {
        Err(Error::Global { global, .. }) => assert_eq!(global, "posix.system"),
        other => panic!("{other:?}"),
    };
    for key in ["a.pdparams", "a.pdopt", "a.pdtensor"] {
        refused(open_file(&store(&[(key, attack)]), key));
    }
    refused(open(&store(&[("0.metadata", attack), FLEX[1], FLEX[2]])));
    refused(open(&store(&[FLEX[0], ("0_0.distcp", attack), FLEX[2]])));
}

proptest! {
    #[test]
    fn damaged_files_are_errors_or_other_data_but_never_panics(
        which in 0..FILES.len(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
    ) {
        let (key, bytes) = FILES[which];
        let store = store(FILES);
        store.delete(key).unwrap();
        store.put(key, &damaged(bytes, at, byte, cut), PutMode::Create).unwrap();
        let key = match key {
            "program.json" => "program.pdiparams",
            "old.pdmodel" => "old.pdiparams",
            _ => key,
        };
        let _ = open_file(&store, key);
    }

    #[test]
    fn damaged_folders_are_errors_or_other_data_but_never_panic(
        which in 0..FLEX.len(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
    ) {
        let mut files = FLEX.to_vec();
        let damaged = damaged(files[which].1, at, byte, cut);
        files[which].1 = &damaged;
        let _ = open(&store(&files));
    }
}

fn damaged(bytes: &[u8], at: prop::sample::Index, byte: u8, cut: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = at.index(bytes.len());
    if cut {
        bytes.truncate(at);
    } else {
        bytes[at] = byte;
    }
    bytes
}
