//! A corpus of files that claim more than is there: every verb that reads them ends within 30 seconds and a gigabyte, in words.
//!
//! Whoever finds another such file adds it here. The limit is on address space, with one arena: a gigabyte of data, and the rest for the
//! program's own image and the stacks of its threads.

use crate::fixture::{Place, floats};
use cairn::formats::dcp::{StoredItem, encode_metadata};
use cairn::tensor::DType;
use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const MEMORY_KIB: u64 = (1 << 20) + (768 << 10);
const MOST_TIME: Duration = Duration::from_secs(30);

/// Runs the command with little memory; it must end by itself, soon and without a panic.
fn ends(place: &Place, line: &str) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec timeout -k 1 60 \"$0\" \"$@\"");
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_cairn")])
        .args(line.split(' '))
        .env("MALLOC_ARENA_MAX", "1")
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code <= 4),
        "{line}: {code:?} {said}"
    );
    assert!(!said.contains("panicked"), "{line}: {said}");
    assert!(start.elapsed() < MOST_TIME, "{line}: {:?}", start.elapsed());
    output
}

/// The same, and it must refuse.
fn refused(place: &Place, line: &str) {
    let output = ends(place, line);
    assert!(!output.status.success(), "{line}: {output:?}");
}

#[test]
fn a_torch_folder_whose_metadata_claims_more_than_its_files_hold() {
    let place = Place::empty();
    let values = floats(&[1.0; 1024]);
    place.safetensors("w.safetensors", &[("w", "F32", &[1024], values)]);
    assert!(
        ends(&place, "convert w.safetensors dcp --to dcp")
            .status
            .success()
    );
    let file = "__0_0.distcp".to_string();
    let len_bytes = fs::metadata(place.path(&format!("dcp/{file}")))
        .unwrap()
        .len();
    for (dtype, count) in [
        (DType::F32, 1 << 50),
        (DType::F32, 1 << 20),
        (DType::U8, usize::MAX / 2),
    ] {
        let item = StoredItem {
            name: "w".into(),
            tensor: Some((dtype, vec![count])),
            file: file.clone(),
            offset: 0,
            len_bytes,
        };
        fs::write(
            place.path("dcp/.metadata"),
            encode_metadata(&[item]).unwrap(),
        )
        .unwrap();
        for line in [
            "inspect dcp",
            "stats dcp",
            "diff dcp dcp",
            "cat dcp w",
            "verify dcp",
            "report dcp --out r.html",
            "convert dcp out --to hf",
            "convert dcp out --to cairn",
            "reshard dcp out --mesh tp=2",
        ] {
            refused(&place, line);
        }
        assert!(!place.path("out").join("config.json").exists());
    }
}

#[test]
fn a_header_with_more_tensors_than_anybody_has() {
    let place = Place::empty();
    let mut header = String::from("{");
    for index in 0..1_000_000 {
        let comma = if index == 0 { "" } else { "," };
        header.push_str(&format!(
            "{comma}\"{index}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"
        ));
    }
    header.push('}');
    let len = (header.len() as u64).to_le_bytes();
    fs::write(
        place.path("many.safetensors"),
        [&len[..], header.as_bytes()].concat(),
    )
    .unwrap();
    for verb in [
        "inspect many.safetensors",
        "convert many.safetensors out --to cairn",
        "stats many.safetensors",
    ] {
        refused(&place, verb);
    }
}

#[test]
fn recipes_that_grow() {
    let place = Place::empty();
    place.safetensors("w.safetensors", &[("w", "F32", &[2, 2], floats(&[1.0; 4]))]);
    let doubling: String = (0..40)
        .map(|step| match step {
            0 => "w, w -> a0, axis=0\n".to_string(),
            step => format!("a{0}, a{0} -> a{step}, axis=0\n", step - 1),
        })
        .collect();
    let lists = "each i in 0..60000: w -> x{i}\n".repeat(30);
    let nested = "each i in 0..60000: each j in 0..60000: if never: w -> x\n".to_string();
    let inside = "w -> [[i in 0..60000: a{i}]], [[i in 0..60000: b{i}]]\n".repeat(40);
    let long = [
        format!("w, {} -> c, axis=4\n", "b".repeat(70_000)),
        format!("w -> w, axis={}\n", "9".repeat(200_000)),
        format!("w -> {}\n", "b, ".repeat(100_000)),
    ];
    let recipes = [doubling, lists, nested, inside].into_iter().chain(long);
    for (index, recipe) in recipes.enumerate() {
        fs::write(place.path("r.recipe"), recipe).unwrap();
        let output = ends(&place, "recipe explain r.recipe --sources w.safetensors");
        assert!(!output.status.success(), "recipe {index}");
        refused(
            &place,
            "convert w.safetensors out --to hf --recipe r.recipe",
        );
    }
}

#[test]
fn configs_of_merges_that_grow() {
    let place = Place::empty();
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x]\n");
    for (name, before) in ["b", "c", "d", "e", "f", "g", "h"]
        .into_iter()
        .zip(["a", "b", "c", "d", "e", "f", "g"])
    {
        let again = format!("*{before}, ").repeat(8);
        bomb.push_str(&format!("{name}: &{name} [{again}]\n"));
    }
    for config in [
        bomb,
        "[".repeat(1_000_000),
        "a: ".repeat(100_000),
        "? ".repeat(1_000_000),
    ] {
        fs::write(place.path("m.yml"), config).unwrap();
        refused(&place, "merge m.yml out");
    }
}
