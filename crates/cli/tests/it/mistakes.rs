//! The usual mistakes, and what is said about them.

use crate::fixture::{Place, check};
use std::fs;

#[test]
fn a_path_that_does_not_exist() {
    check!(Place::empty().cairn(&["inspect", "nowhere"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `nowhere` does not exist
    ");
}

#[test]
fn a_folder_that_is_no_checkpoint() {
    let place = Place::empty();
    fs::create_dir(place.path("stuff")).unwrap();
    fs::write(place.path("stuff/notes.txt"), "x").unwrap();
    check!(place.cairn(&["inspect", "stuff"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `stuff` is not a checkpoint or model

    hint: expected a run (with folders `step-…`), a step, a folder of Hugging Face, torch distributed, Megatron, DeepSpeed, Orbax or Paddle, or a file such as `.safetensors`, `.pt`, `.bin` or `.pdparams`
    ");
    check!(place.cairn(&["inspect", "stuff/notes.txt"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `stuff/notes.txt` is not a checkpoint or model

    hint: expected a run (with folders `step-…`), a step, a folder of Hugging Face, torch distributed, Megatron, DeepSpeed, Orbax or Paddle, or a file such as `.safetensors`, `.pt`, `.bin` or `.pdparams`
    ");
    check!(place.cairn(&["ls", "stuff"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `stuff` is not a run

    hint: a run is a folder with folders such as `step-00012000`
    ");
}

#[test]
fn a_step_that_does_not_exist() {
    let place = Place::with_run();
    check!(place.cairn(&["inspect", "run/step-00000011"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no step 11 in `file://[DIR]/run`

    hint: committed steps: 10, 20
    ");
    check!(place.cairn(&["verify", "run/step-00000011"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no step 11 in `file://[DIR]/run`

    hint: committed steps: 10, 20
    ");
}

#[test]
fn a_step_that_was_never_committed() {
    let place = Place::with_run();
    fs::remove_file(place.path("run/step-00000020/COMMIT")).unwrap();
    check!(place.cairn(&["inspect", "run/step-00000020"]), @"
    exit code 4
    ----- stdout
    ----- stderr
    error: step 20 was never committed: `step-00000020/COMMIT` does not exist

    hint: `cairn verify --finish` completes it if every part is there
    ");
    fs::remove_file(place.path("run/step-00000010/COMMIT")).unwrap();
    check!(place.cairn(&["inspect", "run"]), @"
    exit code 4
    ----- stdout
    ----- stderr
    error: `file://[DIR]/run` has no usable checkpoint

    hint: `cairn ls` shows every step and what is wrong with it
    ");
}

#[test]
fn a_damaged_manifest() {
    let place = Place::with_run();
    fs::write(place.path("run/step-00000020/COMMIT"), "{}").unwrap();
    check!(place.cairn(&["inspect", "run/step-00000020"]), @"
    exit code 3
    ----- stdout
    ----- stderr
    error: `step-00000020/COMMIT` is damaged: it has only 2 bytes

    hint: use another step: `cairn ls` shows them, and loading `latest` passes over damaged ones
    ");
}

#[test]
fn damage_that_shows_only_when_read() {
    let place = Place::with_run();
    for file in place.files("run/step-00000020", ".safetensors") {
        let mut bytes = fs::read(&file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    check!(place.cairn(&["cat", "run", "model.embed.weight[0]"]), @"
    exit code 3
    ----- stdout
    ----- stderr
    error: `step-00000020/[ATTEMPT]/00000.safetensors` is damaged: bytes 0..5276 (tensor `model.embed.weight`) have CRC [CRC], written with CRC [CRC]

    hint: use another step: `cairn ls` shows them, and loading `latest` passes over damaged ones
    ");
}

#[test]
fn a_file_that_is_not_safetensors() {
    let place = Place::empty();
    fs::write(place.path("x.safetensors"), "not a header").unwrap();
    check!(place.cairn(&["inspect", "x.safetensors"]), @"
    exit code 3
    ----- stdout
    ----- stderr
    error: `x.safetensors` is not a valid safetensors file: a header of 7307125996937047918 bytes is over the limit of 100000000

    hint: the file is damaged or incomplete: fetch or write it again
    ");
}

#[test]
fn a_misspelt_tensor() {
    let place = Place::with_run();
    check!(place.cairn(&["cat", "run", "model.layers.0.q_porj.weight[0]"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no tensor `model.layers.0.q_porj.weight`

    hint: did you mean `model.layers.0.q_proj.weight`?
    ");
    check!(place.cairn(&["inspect", "run", "--map", "zzz"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no tensor `zzz`

    hint: `cairn inspect --tree` lists every name
    ");
    check!(place.cairn(&["convert", "run", "hf", "--to", "hf", "--keys", "modle.*"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: no tensor has a name like `modle.*`

    hint: did you mean `model.embed.weight`?
    ");
}

#[test]
fn a_slice_that_does_not_fit() {
    check!(Place::with_run().cairn(&["cat", "run", "model.norm.weight[0, 1]"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot take `[0, 1]` of a tensor of shape [8]: it has 2 entries

    hint: indices are those of NumPy: `[0, 2:8, ::-1, ..., None, [1, 5]]`
    ");
}

#[test]
fn a_mesh_or_rule_that_makes_no_sense() {
    let place = Place::with_run();
    let reshard =
        |mesh, rule| place.cairn(&["reshard", "run", "new", "--mesh", mesh, "--shard", rule]);
    check!(reshard("tp=2", "*.weight=pp"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot use the shard rule `*.weight=pp`
      the mesh has no axis `pp`

    hint: its axes are `tp`
    ");
    check!(reshard("tp=2", "*.weight"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot use the shard rule `*.weight`
      `*.weight` is not a shard rule: expected `PATTERN=SHARDING`, such as `*.q_proj.weight=tp,-`
    ");
    check!(reshard("tp", "*=tp"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: invalid value 'tp' for '--mesh <MESH>': `tp` is not a mesh: expected `axis=size,…` or `single`, then perhaps ` on first..end` or ` on [rank,…]`

    For more information, try '--help'.
    ");
    check!(reshard("tp=2", "model.norm.weight=-,tp"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: tensor `model.norm.weight` cannot be placed
      dim 1 is outside a tensor of 1 dims
    ");
}

#[test]
fn a_step_given_as_the_target() {
    let place = Place::with_run();
    check!(place.cairn(&["reshard", "run", "new/step-00000007", "--mesh", "tp=2"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: `new/step-00000007` is a step, not a run

    hint: give the folder of the run, and the step with `--step 7`
    ");
}

#[test]
fn a_rank_outside_the_mesh() {
    let place = Place::with_run();
    check!(place.cairn(&["plan", "load", "run", "--mesh", "tp=2", "--rank", "2"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no rank 2 in mesh `tp=2`

    hint: its ranks end at 1
    ");
}

#[test]
fn a_store_that_is_not_supported() {
    check!(Place::empty().cairn(&["ls", "ftp://server/run"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot open a store at `ftp://server/run`: `ftp` is not supported; supported are paths, `file://`, `s3://`, `gs://`, `az://`

    hint: give a path, or a URL such as `file:///data/run` or `s3://bucket/run`
    ");
}

#[test]
fn arguments_that_make_no_sense() {
    let place = Place::with_run();
    check!(place.cairn(&["verify", "run", "--read-data=200%"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: invalid value '200%' for '--read-data[=<SHARE>]': expected a share between 0% and 100%, such as `10%`

    For more information, try '--help'.
    ");
    check!(place.cairn(&["inspekt", "run"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: unrecognized subcommand 'inspekt'

      tip: a similar subcommand exists: 'inspect'

    Usage: cairn [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    check!(place.cairn(&["inspect", ""]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot open a store at ``: the path is empty or contains a NUL

    hint: give a path, or a URL such as `file:///data/run` or `s3://bucket/run`
    ");
}

/// What the client of a service would panic over, at the first request or before.
#[test]
fn addresses_and_settings_of_buckets_that_cannot_be_sent_are_refused_by_name() {
    let place = Place::empty();
    let good = [
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ];
    let cases = [
        ("AWS_ACCESS_KEY_ID", "AKIA\n", "s3://bucket/run"),
        ("AWS_SECRET_ACCESS_KEY", "hidden\n", "s3://bucket/run"),
        ("AWS_SESSION_TOKEN", "hidden\n", "s3://bucket/run"),
        ("AWS_ENDPOINT_URL", "not a url", "s3://bucket/run"),
        ("AWS_ENDPOINT_URL", "http://[::1", "s3://bucket/run"),
        ("AWS_REGION", "eu west 1", "s3://bucket/run"),
        ("UNUSED", "", "s3://a bucket/run"),
        ("UNUSED", "", "s3://b\u{e4}d/run"),
        ("UNUSED", "", "gs://a bucket/run"),
        ("UNUSED", "", "az://a bucket/run"),
        (
            "AZURE_STORAGE_ACCOUNT_KEY",
            "hidden\n",
            "az://container/run",
        ),
    ];
    for (name, value, url) in cases {
        for verb in ["ls", "inspect", "doctor"] {
            let output = place
                .command(&[verb, url])
                .envs(good)
                .env(name, value)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{name} {url}: {said}");
            assert!(
                said.contains("error: cannot open a store at"),
                "{name} {url}: {said}"
            );
            assert!(
                !said.contains("panicked") && !said.contains("hidden"),
                "{said}"
            );
        }
    }
}
