//! `cairn inspect` and `cairn cat`.

use crate::fixture::{Place, check};
use cairn::checkpoint::{Checkpointer, SaveOptions, State, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::tensor::DType;
use std::sync::Arc;

#[test]
fn a_run_shows_its_newest_step() {
    check!(Place::with_run().cairn(&["inspect", "run"]), @"
    exit code 0
    ----- stdout
    format      Cairn checkpoint, version 1
    step        20 (latest)
    saved       [TIME] ([AGE] ago) by cairn 0.1.0
    files       4 files, 18.9 KiB, 4 writers
    tensors     8, 1.25 k elements, 2.9 KiB
    mesh        dp=2,tp=2
    tags        eval
    values      lr = 0.001, step = 20
    aliases     model.embed.weight = lm_head.weight
    side files  config.json

    PATTERN                       COUNT  SHAPE      DTYPE  SHARDING         SIZE
    lm_head.weight                    1  [64, 16]   bf16   tp, -         2.0 KiB
    model.layers.#.experts            2  [4, 2, 6]  f32    tp, -, -        384 B
    model.layers.#.q_proj.weight      2  [8, 6]     f32    tp, dp          384 B
    model.norm.weight                 1  [8]        f32    replicated       32 B
    optimizer.exp_avg                 1  [30]       f32    - | flat(dp)    120 B
    optimizer.step                    1  []         i64    replicated        8 B
    ----- stderr

    `--tree` lists every tensor, `--map NAME` draws who holds what of one
    ");
}

#[test]
fn a_step_a_folder_and_a_file_are_told_apart() {
    let place = Place::with_model();
    assert_eq!(place.json(&["inspect", "run/step-00000010"])["step"], 10);
    check!(place.cairn(&["inspect", "hf"]), @"
    exit code 0
    ----- stdout
    format      Hugging Face model
    files       1 file, 8.9 KiB
    tensors     9, 2.28 k elements, 4.9 KiB
    side files  config.json

    PATTERN                       COUNT  SHAPE      DTYPE     SIZE
    lm_head.weight                    1  [64, 16]   bf16   2.0 KiB
    model.embed.weight                1  [64, 16]   bf16   2.0 KiB
    model.layers.#.experts            2  [4, 2, 6]  f32      384 B
    model.layers.#.q_proj.weight      2  [8, 6]     f32      384 B
    model.norm.weight                 1  [8]        f32       32 B
    optimizer.exp_avg                 1  [30]       f32      120 B
    optimizer.step                    1  []         i64        8 B
    ----- stderr

    `--tree` lists every tensor, `--map NAME` draws who holds what of one
    ");
    assert_eq!(
        place.json(&["inspect", "hf/model.safetensors"])["format"],
        "safetensors"
    );
    assert_eq!(place.json(&["inspect", "hf/"])["format"], "hf");
}

#[test]
fn the_tree_lists_every_tensor() {
    check!(Place::with_run().cairn(&["inspect", "run", "--tree"]), @"
    exit code 0
    ----- stdout
    lm_head.weight          bf16[64, 16]  2.0 KiB  tp, -
    model                   5 tensors       800 B
    ├─ layers               4 tensors       768 B
    │  ├─ 0                 2 tensors       384 B
    │  │  ├─ experts        f32[4, 2, 6]    192 B  tp, -, -
    │  │  └─ q_proj.weight  f32[8, 6]       192 B  tp, dp
    │  └─ 1                 2 tensors       384 B
    │     ├─ experts        f32[4, 2, 6]    192 B  tp, -, -
    │     └─ q_proj.weight  f32[8, 6]       192 B  tp, dp
    └─ norm.weight          f32[8]           32 B  replicated
    optimizer               2 tensors       128 B
    ├─ exp_avg              f32[30]         120 B  - | flat(dp)
    └─ step                 i64[]             8 B  replicated
    ----- stderr
    ");
}

#[test]
fn a_tensor_of_two_dims_is_drawn() {
    let place = Place::with_run();
    check!(place.cairn(&["inspect", "run", "--map", "model.layers.0.q_proj.weight"]), @"
    exit code 0
    ----- stdout
    tensor    model.layers.0.q_proj.weight
    type      f32[8, 6], 192 B
    sharding  tp, dp on mesh dp=2,tp=2
    held as   4 shards, 1 rank each

      0            3            6
    0 ┌────────────┬────────────┐
      │ 0          │ 2          │
    4 ├────────────┼────────────┤
      │ 1          │ 3          │
    8 └────────────┴────────────┘

    RANK  STORED      FILE                                              OFFSET  SIZE
       0  [0:4, 0:3]  step-00000020/[ATTEMPT]/00000.safetensors       0  48 B
       1  [4:8, 0:3]  step-00000020/[ATTEMPT]/00001.safetensors       0  48 B
       2  [0:4, 3:6]  step-00000020/[ATTEMPT]/00002.safetensors      96  48 B
       3  [4:8, 3:6]  step-00000020/[ATTEMPT]/00003.safetensors     104  48 B
    ----- stderr
    ");
}

#[test]
fn replicas_are_shown_in_the_drawing() {
    let place = Place::with_run();
    check!(place.cairn(&["inspect", "run", "--map", "lm_head.weight"]), @"
    exit code 0
    ----- stdout
    tensor    lm_head.weight
    type      bf16[64, 16], 2.0 KiB
    sharding  tp, - on mesh dp=2,tp=2
    held as   2 shards, 2 ranks each

       0            16
     0 ┌────────────┐
       │ 0,2        │
    32 ├────────────┤
       │ 1,3        │
    64 └────────────┘

    RANK  STORED      FILE                                              OFFSET     SIZE
       0  [0:32, :]   step-00000020/[ATTEMPT]/00000.safetensors     156  1.0 KiB
       1  [32:64, :]  step-00000020/[ATTEMPT]/00001.safetensors     128  1.0 KiB
    ----- stderr
    ");
}

#[test]
fn a_tensor_of_one_dim_is_drawn_as_a_row() {
    let place = Place::with_run();
    let reshard = [
        "reshard",
        "run",
        "wide",
        "--mesh",
        "tp=4",
        "--shard",
        "model.norm.weight=tp",
    ];
    place.output(&reshard);
    check!(place.cairn(&["inspect", "wide", "--map", "model.norm.weight"]), @"
    exit code 0
    ----- stdout
    tensor    model.norm.weight
    type      f32[8], 32 B
    sharding  tp on mesh tp=4
    held as   4 shards, 1 rank each

    0            2            4            6            8
    ┌────────────┬────────────┬────────────┬────────────┐
    │ 0          │ 1          │ 2          │ 3          │
    └────────────┴────────────┴────────────┴────────────┘

    RANK  STORED  FILE                                              OFFSET  SIZE
       0  [0:2]   step-00000020/[ATTEMPT]/00000.safetensors       0   8 B
       1  [2:4]   step-00000020/[ATTEMPT]/00001.safetensors       0   8 B
       2  [4:6]   step-00000020/[ATTEMPT]/00002.safetensors     192   8 B
       3  [6:8]   step-00000020/[ATTEMPT]/00003.safetensors     584   8 B
    ----- stderr
    ");
}

#[test]
fn many_shards_are_abbreviated() {
    let place = Place::with_run();
    let reshard = [
        "reshard",
        "run",
        "wide",
        "--mesh",
        "dp=16,tp=8",
        "--shard",
        "*.embed.*=dp,tp",
    ];
    place.output(&reshard);
    let map = place.cairn(&["inspect", "wide", "--map", "model.embed.weight"]);
    let drawing: Vec<&str> = map
        .lines()
        .take_while(|line| !line.contains("RANK"))
        .collect();
    check!(drawing.join("\n"), @"
    exit code 0
    ----- stdout
    tensor    model.embed.weight
    type      bf16[64, 16], 2.0 KiB
    sharding  dp, tp on mesh dp=16,tp=8
    held as   128 shards, 1 rank each

       0            2            4            6                14           16
     0 ┌────────────┬────────────┬────────────┬────────────┬───┬────────────┐
       │ 0          │ 1          │ 2          │ 3          │ ⋯ │ 7          │
     4 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 8          │ 9          │ 10         │ 11         │ ⋯ │ 15         │
     8 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 16         │ 17         │ 18         │ 19         │ ⋯ │ 23         │
    12 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 24         │ 25         │ 26         │ 27         │ ⋯ │ 31         │
    16 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 32         │ 33         │ 34         │ 35         │ ⋯ │ 39         │
    20 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 40         │ 41         │ 42         │ 43         │ ⋯ │ 47         │
       ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ ⋮          │ ⋮          │ ⋮          │ ⋮          │ ⋯ │ ⋮          │
    60 ├────────────┼────────────┼────────────┼────────────┼───┼────────────┤
       │ 120        │ 121        │ 122        │ 123        │ ⋯ │ 127        │
    64 └────────────┴────────────┴────────────┴────────────┴───┴────────────┘
    ");
}

#[test]
fn flat_pieces_and_more_dims_are_listed() {
    let place = Place::with_run();
    check!(place.cairn(&["inspect", "run", "--map", "optimizer.exp_avg"]), @"
    exit code 0
    ----- stdout
    tensor    optimizer.exp_avg
    type      f32[30], 120 B
    sharding  - | flat(dp) on mesh dp=2,tp=2
    held as   2 shards, 2 ranks each

    RANKS  HOLD
    0,1    [:] elements 0:15
    2,3    [:] elements 15:30

    RANK  STORED              FILE                                              OFFSET  SIZE
       0  [:] elements 0:15   step-00000020/[ATTEMPT]/00000.safetensors      96  60 B
       2  [:] elements 15:30  step-00000020/[ATTEMPT]/00002.safetensors     288  60 B
    ----- stderr
    ");
    check!(place.cairn(&["inspect", "run", "--map", "model.layers.1.experts"]), @"
    exit code 0
    ----- stdout
    tensor    model.layers.1.experts
    type      f32[4, 2, 6], 192 B
    sharding  tp, -, - on mesh dp=2,tp=2
    held as   2 shards, 2 ranks each

    RANKS  HOLD
    0,2    [0:2, :, :]
    1,3    [2:4, :, :]

    RANK  STORED       FILE                                              OFFSET  SIZE
       2  [0:2, :, :]  step-00000020/[ATTEMPT]/00002.safetensors     144  96 B
       3  [2:4, :, :]  step-00000020/[ATTEMPT]/00003.safetensors     152  96 B
    ----- stderr
    ");
    check!(place.cairn(&["inspect", "run", "--map", "optimizer.step"]), @"
    exit code 0
    ----- stdout
    tensor    optimizer.step
    type      i64[], 8 B
    sharding  replicated on mesh dp=2,tp=2
    held as   1 shard, 4 ranks

    RANKS  HOLD
    0-3    []

    RANK  STORED  FILE                                              OFFSET  SIZE
       3  []      step-00000020/[ATTEMPT]/00003.safetensors       0   8 B
    ----- stderr
    ");
}

#[test]
fn a_model_without_ranks_has_a_map_of_files() {
    check!(Place::with_model().cairn(&["inspect", "hf", "--map", "model.norm.weight"]), @"
    exit code 0
    ----- stdout
    tensor  model.norm.weight
    type    f32[8], 32 B

    STORED  FILE               OFFSET  SIZE
    [:]     model.safetensors    4872  32 B
    ----- stderr
    ");
}

#[test]
fn the_json_of_an_inspection_has_what_the_text_shows() {
    let place = Place::with_run();
    let found = place.json(&["inspect", "run", "--tree"]);
    let fields: Vec<&String> = found.as_object().unwrap().keys().collect();
    check!(format!("{fields:?}"), @r#"["path", "format", "step", "latest", "created", "program", "attempt", "writers", "files", "len_bytes", "tensors", "elements", "tensor_bytes", "meshes", "tags", "values", "aliases", "assets", "patterns", "tree"]"#);
    assert_eq!(found["values"]["lr"], 0.001);
    assert_eq!(found["aliases"]["model.embed.weight"], "lm_head.weight");
    assert_eq!(found["tree"][0]["name"], "lm_head.weight");
    let map = place.json(&["inspect", "run", "--map", "model.layers.0.q_proj.weight"]);
    assert_eq!(map["shards"].as_array().unwrap().len(), 4);
    assert_eq!(map["shards"][1]["ranks"], serde_json::json!([1]));
    assert_eq!(
        map["shards"][1]["pieces"][0]["offset"],
        serde_json::json!([4, 0])
    );
}

#[test]
fn values_are_printed_as_numpy_prints_them() {
    let place = Place::with_run();
    let cat = |tensor| place.cairn(&["cat", "run", tensor]);
    check!(cat("model.layers.0.q_proj.weight[0:2, ::4]"), @"
    exit code 0
    ----- stdout
    model.layers.0.q_proj.weight f32[2, 2]
    [[ 0,  4],
     [ 6, 10]]
    ----- stderr
    ");
    check!(cat("model.layers.1.experts[-1, ..., :2]"), @"
    exit code 0
    ----- stdout
    model.layers.1.experts f32[2, 2]
    [[36, 37],
     [42, 43]]
    ----- stderr
    ");
    check!(cat("model.layers.0.q_proj.weight[::-3, 5]"), @"
    exit code 0
    ----- stdout
    model.layers.0.q_proj.weight f32[3]
    [47, 29, 11]
    ----- stderr
    ");
    check!(cat("optimizer.step"), @"
    exit code 0
    ----- stdout
    optimizer.step i64[]
    0
    ----- stderr
    ");
    check!(cat("model.norm.weight[8:]"), @"
    exit code 0
    ----- stdout
    model.norm.weight f32[0]
    []
    ----- stderr
    ");
}

#[test]
fn large_tensors_are_abbreviated_unless_all_is_asked_for() {
    let place = Place::with_run();
    check!(place.cairn(&["cat", "run", "model.embed.weight"]), @"
    exit code 0
    ----- stdout
    model.embed.weight bf16[64, 16]
    [[   0,    1,    2, …,   13,   14,   15],
     [  16,   17,   18, …,   29,   30,   31],
     [  32,   33,   34, …,   45,   46,   47],
     …,
     [ 976,  976,  976, …,  988,  988,  988],
     [ 990,  990,  990, …, 1004, 1004, 1004],
     [1010, 1010, 1010, …, 1020, 1020, 1020]]
    ----- stderr
    ");
    let full = place.output(&["cat", "run", "model.embed.weight", "--full"]);
    assert_eq!(
        String::from_utf8(full.stdout).unwrap().matches(',').count(),
        1023 + 1
    );
}

#[test]
fn values_as_json_are_nested_numbers() {
    let place = Place::with_run();
    let found = place.json(&["cat", "run", "model.layers.0.q_proj.weight[6:, 1:3]"]);
    assert_eq!(found["values"], serde_json::json!([[37, 38], [43, 44]]));
    assert_eq!(found["shape"], serde_json::json!([2, 2]));
    let model = Place::with_model();
    let found = model.json(&["cat", "hf", "model.layers.0.q_proj.weight[6:, 1:3]"]);
    assert_eq!(found["values"], serde_json::json!([[37, 38], [43, 44]]));
}

#[test]
fn a_tensor_that_is_the_cast_of_another_is_shown_like_one_that_is_stored() {
    let place = Place::empty();
    let store = Arc::new(cairn::store::Local::new(place.path("run")));
    let run = Checkpointer::new(store, World::single());
    let mut state = State::new(0);
    let spec = TensorSpec::parse(&Mesh::single(), "f32[2, 3]").unwrap();
    let master = [1.5f32, -2.0, 0.1, 3.0, 4.0, 1e9].map(f32::to_le_bytes);
    state
        .tensor("master", &spec, master.as_flattened())
        .unwrap();
    state.derive("weight", DType::Bf16, "master").unwrap();
    state.derive("tied", DType::Bf16, "master").unwrap();
    run.save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    let tree = place.json(&["inspect", "run", "--tree"]);
    assert_eq!(tree["tensors"], 2, "other names are not counted again");
    assert_eq!(tree["tree"][1]["name"], "tied");
    assert_eq!(tree["tree"][1]["dtype"], "bf16");
    assert_eq!(tree["aliases"]["weight"], "tied");
    let map = place.json(&["inspect", "run", "--map", "weight"]);
    assert_eq!(map["cast_of"], "master");
    assert_eq!(map["stored"][0]["len_bytes"], 24);
    let converted = place.output(&["convert", "run", "hf", "--to", "hf"]);
    assert!(converted.status.success(), "{converted:?}");
    let resharded = place.output(&["reshard", "run", "other", "--mesh", "tp=2"]);
    assert!(resharded.status.success(), "{resharded:?}");
    for path in ["run", "hf", "other"] {
        let shown = place.output(&["cat", path, "tied"]);
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(
            text.contains("1.5") && text.contains("-2"),
            "{path}: {text}"
        );
    }
}

#[test]
fn boxes_that_another_tool_stored_are_drawn_with_their_numbers() {
    let place = Place::empty();
    std::fs::create_dir(place.path("shards")).unwrap();
    for (file, row) in [(1, 0), (2, 2)] {
        let info = format!(r#"{{\"w\":{{\"saved_offsets\":[{row},0]}}}}"#);
        let header = format!(
            r#"{{"__metadata__":{{"DCP_SHARDING_INFO":"{info}"}},"w":{{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}}}"#
        );
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([0; 24]);
        let name = format!("shards/model-{file:05}-of-00002.safetensors");
        std::fs::write(place.path(&name), bytes).unwrap();
    }
    check!(place.cairn(&["inspect", "shards", "--map", "w"]), @"
    exit code 0
    ----- stdout
    tensor  w
    type    f32[4, 3], 48 B

      0            3
    0 ┌────────────┐
      │ 0          │
    2 ├────────────┤
      │ 1          │
    4 └────────────┘

    BOX  STORED    FILE                              OFFSET  SIZE
      0  [0:2, :]  model-00001-of-00002.safetensors     138  24 B
      1  [2:4, :]  model-00002-of-00002.safetensors     138  24 B
    ----- stderr
    ");
}

/// A folder like that of a mixture of 256 experts in 58 layers: 45,000 tensors in 163 files, none with data on disk.
fn many_tensors(place: &Place) -> usize {
    let experts = (3..61).flat_map(|layer| (0..256).map(move |expert| (layer, expert)));
    let names = experts.flat_map(|(layer, expert)| {
        let name = move |part| format!("model.layers.{layer}.mlp.experts.{expert}.{part}.weight");
        ["gate_proj", "up_proj", "down_proj"].map(name)
    });
    let names: Vec<String> = names.collect();
    std::fs::create_dir(place.path("many")).unwrap();
    let mut index = serde_json::Map::new();
    for (number, names) in names.chunks(274).enumerate() {
        let file = format!("model-{:05}-of-00163.safetensors", number + 1);
        let mut header = serde_json::Map::new();
        for (at, name) in names.iter().enumerate() {
            let offsets = [at << 25, (at + 1) << 25];
            let entry = serde_json::json!({"dtype": "BF16", "shape": [4096, 4096], "data_offsets": offsets});
            header.insert(name.clone(), entry);
            index.insert(name.clone(), file.clone().into());
        }
        let header = serde_json::Value::Object(header).to_string();
        let len = 8 + header.len() as u64 + ((names.len() as u64) << 25);
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        let path = place.path("many").join(file);
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(len).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": index});
    let path = place.path("many/model.safetensors.index.json");
    std::fs::write(path, index.to_string()).unwrap();
    names.len()
}

#[test]
fn a_model_of_many_tensors_is_a_few_lines() {
    let place = Place::empty();
    let count = many_tensors(&place);
    let report = place.json(&["inspect", "many"]);
    assert_eq!(report["tensors"], count);
    let patterns = report["patterns"].as_array().unwrap();
    assert_eq!(patterns.len(), 3);
    assert_eq!(
        patterns[0]["pattern"],
        "model.layers.#.mlp.experts.#.down_proj.weight"
    );
    assert_eq!(patterns[0]["count"], count / 3);
}
