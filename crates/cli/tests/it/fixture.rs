//! Runs and models on disk, and the command run beside them.

use cairn::checkpoint::{Checkpointer, SaveOptions, State, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::{Local, Store};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::TempDir;

/// What a run of the tests looks like on screen, without what changes from one run to the next.
macro_rules! check {
    ($output:expr, @$expected:literal) => {
        insta::with_settings!({filters => crate::fixture::FILTERS.to_vec()}, {
            insta::assert_snapshot!($output, @$expected);
        });
    };
}
pub(crate) use check;

pub(crate) const FILTERS: &[(&str, &str)] = &[
    (r"file:///\S*?/(\.tmp\w+)", "file://[DIR]"),
    (r"\b[0-9a-f]{16}\b", "[ATTEMPT]"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[TIME]"),
    (r"\d+ s ago", "[AGE] ago"),
    (r"CRC [0-9a-f]{8}", "CRC [CRC]"),
    (r"in \d+\.\d s", "in [SECONDS] s"),
    (r"(\s)\d s  (complete|incomplete|damaged)", "$1[AGE]  $2"),
    (r#""age_seconds": \d+"#, r#""age_seconds": [AGE]"#),
];

/// A folder with checkpoints in it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// With the run `run`: steps 10 and 20 of a small model, saved by four ranks.
    pub(crate) fn with_run() -> Self {
        let place = Self::empty();
        place.save("run", 10, &[]);
        place.save("run", 20, &["eval"]);
        place
    }

    /// With the run, and the folder `hf` with the same model.
    pub(crate) fn with_model() -> Self {
        let place = Self::with_run();
        let output = place.output(&["convert", "run", "hf", "--to", "hf"]);
        assert!(output.status.success());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn save(&self, run: &str, step: u64, tags: &[&str]) {
        Self::save_to(Arc::new(Local::new(self.path(run))), step, tags);
    }

    /// Saves a step of the small model to a store.
    pub(crate) fn save_to(store: Arc<dyn Store>, step: u64, tags: &[&str]) {
        let mesh: Mesh = "dp=2,tp=2".parse().unwrap();
        let tensors = tensors(&mesh);
        let options = SaveOptions {
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
            assets: [("config.json".to_string(), b"{}".to_vec())].into(),
            ..SaveOptions::default()
        };
        let ranks: Vec<Checkpointer> = World::threads(4)
            .into_iter()
            .map(|world| Checkpointer::new(store.clone(), world))
            .collect();
        let savings: Vec<_> = ranks
            .iter()
            .enumerate()
            .map(|(rank, run)| {
                let memory: Vec<Vec<u8>> =
                    tensors.iter().map(|(_, spec)| local(spec, rank)).collect();
                let mut state = State::new(rank);
                for ((name, spec), bytes) in tensors.iter().zip(&memory) {
                    state.tensor(name, spec, bytes).unwrap();
                }
                state
                    .tensor("lm_head.weight", &tensors[0].1, &memory[0])
                    .unwrap();
                state.value("step", json!(step));
                state.value("lr", json!(0.001));
                state.rank_value("rng", json!(rank));
                run.save(step, &state, &options).unwrap()
            })
            .collect();
        for saving in savings {
            saving.wait().unwrap();
        }
    }

    /// Writes one safetensors file: names with type, shape and bytes.
    pub(crate) fn safetensors(&self, name: &str, tensors: &[(&str, &str, &[usize], Vec<u8>)]) {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::<u8>::new());
        for (tensor, dtype, shape, bytes) in tensors {
            let start = data.len();
            data.extend(bytes);
            let entry =
                json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(tensor.to_string(), entry);
        }
        let header = Value::Object(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(data);
        std::fs::write(self.path(name), file).unwrap();
    }

    /// Runs the command here.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The command, to be run here.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env_remove("NO_COLOR");
        command
    }

    /// Runs the command and shows everything it says.
    pub(crate) fn cairn(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let code = output.status.code().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        format!("exit code {code}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }

    /// Runs the command with `--json` and parses what it says; it must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.output(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The files under `name` whose names end in `end`, in order.
    pub(crate) fn files(&self, name: &str, end: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.path(name), &mut found);
        found.retain(|path| path.to_str().is_some_and(|path| path.ends_with(end)));
        found.sort();
        found
    }
}

/// The bytes of some `f32`.
pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

fn tensors(mesh: &Mesh) -> Vec<(String, TensorSpec)> {
    let mut specs = vec![
        ("model.embed.weight".to_string(), "bf16[64@tp, 16]"),
        ("model.norm.weight".to_string(), "f32[8]"),
        ("optimizer.exp_avg".to_string(), "f32[30 | flat(dp)]"),
        ("optimizer.step".to_string(), "i64[]"),
    ];
    for layer in 0..2 {
        specs.push((
            format!("model.layers.{layer}.q_proj.weight"),
            "f32[8@tp, 6@dp]",
        ));
        specs.push((format!("model.layers.{layer}.experts"), "f32[4@tp, 2, 6]"));
    }
    let parse = |text| TensorSpec::parse(mesh, text).unwrap();
    specs
        .into_iter()
        .map(|(name, text)| (name, parse(text)))
        .collect()
}

/// The rank's bytes of a tensor whose element at flat position `n` is `n`.
fn local(spec: &TensorSpec, rank: usize) -> Vec<u8> {
    let strides = cairn::tensor::row_major_strides(spec.shape());
    let count = spec.local_element_count(rank);
    let width = spec.dtype().bits() / 8;
    let mut bytes = vec![0; count * width];
    for held in spec.local_boxes(rank) {
        for index in 0..held.region.element_count() {
            let (mut rest, mut global, mut place) = (index, 0, held.local.offset);
            for dim in (0..held.region.ndim()).rev() {
                let at = rest % held.region.extent[dim];
                rest /= held.region.extent[dim];
                global += (held.region.offset[dim] + at) * strides[dim];
                place += at * held.local.strides[dim];
            }
            bytes[place * width..][..width].copy_from_slice(&element(spec, global));
        }
    }
    bytes
}

fn element(spec: &TensorSpec, value: usize) -> Vec<u8> {
    use cairn::tensor::DType;
    match spec.dtype() {
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes()[2..].to_vec(),
    }
}
