//! Memory and disks that end: real processes held to what `--plan` promises, and a file system that is really full.
//!
//! Peaks are those the kernel keeps of a process, looked at until it is gone. A file system of a few megabytes is mounted for the
//! tests of full disks; where that is not allowed they say so and pass.

use crate::fixture::Place;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tensors of a large model; each is of `[ROWS, COLUMNS]` `bf16`.
const TENSORS: usize = 13;
const ROWS: usize = 2048;
const COLUMNS: usize = 4096;
const TENSOR_BYTES: usize = 2 * ROWS * COLUMNS;

/// Room for the program itself: its code as far as it runs, and the stacks of its threads.
const PROGRAM_BYTES: u64 = 24 << 20;

impl Place {
    /// Writes a model of 218 MB, in one file, whose numbers depend on `seed`.
    fn large_model(&self, name: &str, seed: usize) {
        fs::create_dir(self.path(name)).unwrap();
        let mut header = serde_json::Map::new();
        for tensor in 0..TENSORS {
            let offsets = [tensor, tensor + 1].map(|at| at * TENSOR_BYTES);
            let entry = serde_json::json!({"dtype": "BF16", "shape": [ROWS, COLUMNS], "data_offsets": offsets});
            header.insert(format!("model.layers.{tensor}.mlp.up_proj.weight"), entry);
        }
        let header = Value::Object(header).to_string();
        let start = (header.len() as u64).to_le_bytes();
        let path = format!("{name}/model.safetensors");
        let file = fs::File::create(self.path(&path)).unwrap();
        file.write_all_at(&[&start, header.as_bytes()].concat(), 0)
            .unwrap();
        let data: Vec<u8> = (0..ROWS * COLUMNS)
            .flat_map(|at| {
                u16::try_from(0x3c00 + (at + seed) * 7919 % 509)
                    .unwrap()
                    .to_le_bytes()
            })
            .collect();
        for tensor in 0..TENSORS {
            let offset = 8 + header.len() + tensor * TENSOR_BYTES;
            file.write_all_at(&data, offset as u64).unwrap();
        }
        fs::write(self.path(&format!("{name}/config.json")), "{}").unwrap();
    }

    /// Runs the command, which must succeed, and returns the most memory it had, in bytes.
    fn peak_bytes(&self, args: &[&str]) -> u64 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(args)
            .current_dir(self.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let status = PathBuf::from(format!("/proc/{}/status", child.id()));
        let mut peak = 0;
        loop {
            // The kernel only ever raises it, so little can be missed.
            peak = peak.max(high_water_bytes(&status).unwrap_or(0));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{args:?}");
                return peak;
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Checks that a command keeps to the memory that it announces with `--plan`, beside what the program itself takes.
    fn keeps_its_promise(&self, args: &[&str]) {
        let promised = self.json(&[args, &["--plan"]].concat())["memory_bytes"].as_u64();
        let promised = promised.unwrap();
        let peak = self.peak_bytes(args);
        assert!(
            peak <= promised + PROGRAM_BYTES,
            "{args:?}: {peak} bytes, promised {promised}"
        );
        // A promise of anything would not be one.
        assert!(
            promised < 3 * peak,
            "{args:?}: {peak} bytes, promised {promised}"
        );
    }
}

/// The peak memory in the status file of a process.
fn high_water_bytes(status: &Path) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[test]
fn converting_a_large_model_keeps_to_the_memory_that_the_plan_says() {
    let place = Place::empty();
    place.large_model("model", 0);
    place.keeps_its_promise(&[
        "convert",
        "model",
        "hf",
        "--to",
        "hf",
        "--shard-size",
        "50M",
        "--memory",
        "64M",
    ]);
    place.keeps_its_promise(&[
        "convert", "model", "run", "--to", "cairn", "--memory", "64M",
    ]);
    place.keeps_its_promise(&[
        "convert", "model", "wide.pt", "--to", "torch", "--dtype", "f32", "--memory", "64M",
    ]);
}

#[test]
fn merging_large_models_keeps_to_the_memory_that_the_plan_says() {
    let place = Place::empty();
    for (seed, name) in ["base", "one", "two"].into_iter().enumerate() {
        place.large_model(name, seed);
    }
    for method in ["ties", "dare_linear", "della", "model_stock"] {
        fs::write(place.path("merge.yml"), merge_config(method)).unwrap();
        place.keeps_its_promise(&["merge", "merge.yml", method, "--threads", "2"]);
        fs::remove_dir_all(place.path(method)).unwrap();
    }
}

/// A merge of `one` and `two` into `base`.
fn merge_config(method: &str) -> String {
    let model =
        |name: &str| format!("  - {{model: {name}, parameters: {{weight: 0.5, density: 0.5}}}}\n");
    let models = [model("one"), model("two")].concat();
    match method {
        "model_stock" => format!(
            "merge_method: {method}\nbase_model: base\nmodels:\n  - model: one\n  - model: two\n"
        ),
        _ => format!("merge_method: {method}\nbase_model: base\nmodels:\n{models}"),
    }
}

/// A file system of its own in memory, gone when dropped.
struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// Mounts one of so many megabytes; `None`, and says so, where that is not allowed.
    #[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
    fn new(folder: PathBuf, megabytes: usize) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let options = format!("size={megabytes}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&folder)
            .output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        eprintln!("SKIPPED: no file system can be mounted here, so no disk was really full");
        None
    }

    fn grow(&self, megabytes: usize) {
        let options = format!("remount,size={megabytes}m");
        let mount = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.folder)
            .status();
        assert!(mount.unwrap().success());
    }
}

impl Mount {
    /// Fills it up but for a few bytes, with the file `other`.
    fn fill(&self, left_bytes: u64) {
        let other = fs::File::create(self.folder.join("other")).unwrap();
        let mut taken = 0;
        while other.write_all_at(&[1; 4096], taken).is_ok() {
            taken += 4096;
        }
        other.set_len(taken - left_bytes).unwrap();
    }

    fn protect(&self) {
        let mount = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(&self.folder)
            .status();
        assert!(mount.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

/// The bytes of every file under `folder`, by name.
fn contents(place: &Place, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = place.files(folder, "").into_iter();
    let relative = |path: &PathBuf| path.strip_prefix(place.path(folder)).unwrap().to_path_buf();
    files
        .map(|path| (relative(&path), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn a_conversion_that_cannot_fit_is_refused_before_anything_is_written() {
    let place = Place::empty();
    let Some(_disk) = Mount::new(place.path("disk"), 100) else {
        return;
    };
    place.large_model("model", 0);
    let output = place.output(&["convert", "model", "disk/hf", "--to", "hf"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("not enough space") || text.contains("no space"),
        "{text}"
    );
    assert!(place.files("disk", ".safetensors").is_empty());
}

#[test]
fn a_disk_that_fills_up_while_converting_leaves_no_model_and_resumes_to_the_same_bytes() {
    let place = Place::empty();
    let Some(disk) = Mount::new(place.path("disk"), 260) else {
        return;
    };
    place.large_model("model", 0);
    let args = [
        "convert",
        "model",
        "disk/hf",
        "--to",
        "hf",
        "--shard-size",
        "17M",
        "--memory",
        "16M",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(args)
        .current_dir(place.path(""))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // As soon as there is data, somebody else takes the space that is left.
    let begun = Instant::now();
    while place.files("disk", ".safetensors").is_empty()
        && begun.elapsed() < Duration::from_secs(60)
    {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before the disk was full"
        );
        sleep(Duration::from_millis(1));
    }
    let other = fs::File::create(place.path("disk/other")).unwrap();
    let mut taken = 0;
    while other.write_all_at(&[1; 1 << 16], taken).is_ok() {
        taken += 1 << 16;
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("space"), "{text}");
    let published = fs::read_dir(place.path("disk/hf")).unwrap();
    let names: Vec<_> = published.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".cairn-convert"], "nothing looks finished");

    drop(other);
    fs::remove_file(place.path("disk/other")).unwrap();
    disk.grow(300);
    let output = place.output(&[&args[..], &["--resume"]].concat());
    assert!(output.status.success(), "{output:?}");
    let whole = args.map(|arg| if arg == "disk/hf" { "hf" } else { arg });
    assert!(place.output(&whole).status.success());
    assert!(
        contents(&place, "disk/hf") == contents(&place, "hf"),
        "the bytes differ"
    );
}

#[test]
fn a_merge_that_does_not_fit_says_so_before_a_byte_is_written_and_fits_later() {
    let place = Place::empty();
    let Some(disk) = Mount::new(place.path("disk"), 60) else {
        return;
    };
    for (seed, name) in ["base", "one", "two"].into_iter().enumerate() {
        place.large_model(name, seed);
    }
    fs::write(place.path("merge.yml"), merge_config("dare_linear")).unwrap();
    let args = ["merge", "merge.yml", "disk/merged", "--shard-size", "34M"];
    let output = place.output(&args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("space"), "{text}");
    assert!(place.files("disk", ".safetensors").is_empty());

    disk.grow(300);
    let output = place.json(&[&args[..], &["--resume"]].concat());
    assert!(output["kept"].as_array().unwrap().is_empty());
    let whole = args.map(|arg| if arg == "disk/merged" { "merged" } else { arg });
    assert!(place.output(&whole).status.success());
    assert!(
        contents(&place, "disk/merged") == contents(&place, "merged"),
        "the bytes differ"
    );
}

/// A run whose checkpoints are on a disk of their own.
const ON_DISK: [&str; 6] = [
    "train",
    "run.toml",
    "--set",
    "checkpoints.folder=disk/run",
    "--set",
    "log.folder=run",
];

/// What training with these arguments besides says on its way to an error.
fn fails_to_train(place: &Place, args: &[&str]) -> String {
    let output = place.output(&[&ON_DISK[..], args].concat());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

#[test]
fn a_disk_that_is_full_while_training_ends_it_as_configured_and_the_last_good_step_loads() {
    let place = Place::empty();
    place.write_config();
    let rate = ["--set", "learning_rate.shape=constant"];
    let (first, all) = (["--set", "steps=4"], ["--set", "steps=20"]);
    place.json(
        &[
            &["train", "run.toml"],
            &all[..],
            &rate,
            &["--set", "checkpoints.folder=whole"],
        ]
        .concat(),
    );
    let Some(disk) = Mount::new(place.path("disk"), 2) else {
        return;
    };
    place.json(&[&ON_DISK[..], &first, &rate].concat());
    // Less than a checkpoint takes.
    disk.fill(24 << 10);
    let text = fails_to_train(&place, &[&all[..], &rate].concat());
    assert!(text.contains("step 18 was not saved: "), "{text}");
    assert!(
        text.contains("error: the checkpoint of step 20 was not saved"),
        "{text}"
    );
    assert!(text.contains("free at least"), "{text}");
    // What failed has left the small files of its attempts.
    disk.fill(24 << 10);
    let few = ["--set", "checkpoints.max_failed=1"];
    let text = fails_to_train(&place, &[&all[..], &rate, &few].concat());
    assert!(
        text.contains("error: the checkpoint of step 8 was not saved"),
        "{text}"
    );

    fs::remove_file(place.path("disk/other")).unwrap();
    let verified = place.output(&["verify", "disk/run:4", "--read-data"]);
    assert_eq!(verified.status.code(), Some(0));
    let rest = place.json(&[&ON_DISK[..], &all, &rate].concat());
    assert_eq!(rest["resumed_from"], 4);
    assert_eq!(place.losses("run"), place.losses("whole"));
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_before_the_first_step() {
    let place = Place::empty();
    place.write_config();
    let Some(disk) = Mount::new(place.path("disk"), 1) else {
        return;
    };
    let steps = ["--set", "steps=4"];
    place.json(&[&ON_DISK[..], &steps].concat());
    disk.protect();
    let text = fails_to_train(&place, &["--set", "steps=8"]);
    assert!(text.contains("checkpoints cannot be written to"), "{text}");
    assert!(text.contains("read-only"), "{text}");
    assert_eq!(place.steps("run"), [1, 2, 3, 4]);
    // A run that is over needs nothing more.
    place.json(&[&ON_DISK[..], &steps].concat());
}

/// A model that is little but two tables: 4 Mi parameters of 4 bytes, and twice that of moments.
const TABLES: &str = r#"
steps = 2
[model.config]
architectures = ["LlamaForCausalLM"]
vocab_size = 32768
hidden_size = 64
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
[data]
sources = "train.tokens"
[batch]
sequences = 1
length = 8
[checkpoints]
folder = "tables"
"#;

#[test]
fn state_in_files_takes_about_as_much_memory_less_as_the_moments_have() {
    let place = Place::empty();
    place.write_config();
    fs::write(place.path("tables.toml"), TABLES).unwrap();
    let files = ["train", "tables.toml", "--set", "optimizer.offload=files"];
    let plan = place.json(&[&files[..], &["--dry-run"]].concat());
    let moments = plan["ranks"][0]["file_bytes"].as_u64().unwrap();
    assert!(moments > 32 << 20, "{plan}");
    let [memory, offloaded] = [&files[..2], &files].map(|args| {
        let folder = format!("checkpoints.folder=tables-{}", args.len());
        place.peak_bytes(&[args, &["--set", &folder]].concat())
    });
    assert!(
        memory >= offloaded + moments * 9 / 10,
        "{memory} with state in memory, {offloaded} with {moments} of it in files"
    );
    // Only the settings differ.
    let told = place.cairn(&["diff", "tables-2", "tables-4"]);
    assert!(told.contains("36 the same\nvalues   1 differ"), "{told}");
}
