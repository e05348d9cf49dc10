//! Files made to do harm, one for each way of each reader: all are refused in words, in little memory, and run nothing.
//!
//! The command runs with a limit on its memory. A bomb that goes off ends it by a signal, a mistake in arithmetic by a panic; both fail
//! the test, and so does an exit code that says all is well.

use crate::fixture::{Place, floats};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// More than the command needs, less than any bomb, in KiB of address space.
const MEMORY_KIB: u64 = 4 << 20;

/// Runs the command with little memory.
fn limited(place: &Place, args: &[&str]) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_cairn")]);
    shell
        .args(args)
        .current_dir(place.path(""))
        .output()
        .unwrap()
}

/// The command must refuse, in words.
fn refused(place: &Place, args: &[&str]) -> String {
    let output = limited(place, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| (1..=4).contains(&code)),
        "{args:?} ended with {code:?}: {said}"
    );
    assert!(
        said.contains("error: ") && !said.contains("panicked"),
        "{args:?}: {said}"
    );
    said
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(vec![0; data]);
    file
}

fn entry(shape: &str, begin: u64, end: u64) -> String {
    format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[test]
fn headers_that_lie_are_refused() {
    let place = Place::empty();
    let one = |entry: String| safetensors(&format!(r#"{{"w":{entry}}}"#), 64);
    let max = u64::MAX;
    let files = [
        ("a length of everything", max.to_le_bytes().to_vec()),
        (
            "a length beyond the file",
            [90_000_000_u64.to_le_bytes().to_vec(), vec![b'{'; 99]].concat(),
        ),
        ("a length of nothing", vec![0; 8]),
        ("nothing", Vec::new()),
        ("nesting", safetensors(&"[".repeat(1_000_000), 0)),
        (
            "nesting inside",
            one(format!(
                r#"{}1{}"#,
                "[".repeat(100_000),
                "]".repeat(100_000)
            )),
        ),
        (
            "a shape beyond numbers",
            one(entry("[9223372036854775807, 4]", 0, 64)),
        ),
        (
            "a shape of many dims",
            one(entry(&format!("[{}1]", "1,".repeat(100_000)), 0, 4)),
        ),
        ("offsets that go back", one(entry("[1]", 64, 60))),
        (
            "offsets beyond the file",
            one(entry("[1099511627776]", 0, 4_398_046_511_104)),
        ),
        ("offsets beyond numbers", one(entry("[4]", max - 15, max))),
        (
            "an overlap",
            safetensors(
                &format!(
                    r#"{{"a":{},"b":{}}}"#,
                    entry("[16]", 0, 64),
                    entry("[16]", 0, 64)
                ),
                64,
            ),
        ),
        ("a hole", one(entry("[1]", 4, 8))),
        ("no JSON", safetensors("\u{0}\u{1}", 8)),
    ];
    for (what, bytes) in files {
        fs::write(place.path("x.safetensors"), bytes).unwrap();
        let said = refused(&place, &["inspect", "x.safetensors"]);
        assert!(said.contains("x.safetensors"), "{what}: {said}");
        refused(&place, &["cat", "x.safetensors", "w"]);
    }
}

#[test]
fn an_index_cannot_name_files_outside_its_folder() {
    let place = Place::empty();
    place.safetensors("secret.safetensors", &[("w", "F32", &[1], floats(&[7.0]))]);
    fs::create_dir(place.path("hf")).unwrap();
    let outside = place.path("secret.safetensors");
    let names = [
        "../secret.safetensors",
        outside.to_str().unwrap(),
        "..\\secret.safetensors",
        "a\u{0}b",
        "",
        "./../secret.safetensors",
        "/dev/zero",
    ];
    for name in names {
        let index = serde_json::json!({"weight_map": {"w": name}});
        fs::write(
            place.path("hf/model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        refused(&place, &["cat", "hf", "w"]);
    }
}

/// Everything a pickle can do to who reads it.
fn pickles() -> Vec<(&'static str, Vec<u8>)> {
    let long = |opcode: u8, len: &[u8]| [&[0x80, 2, opcode], len, b"x."].concat();
    let doubled: Vec<u8> = b"q\x00h\x00\x86".repeat(200);
    vec![
        (
            "a call of the system",
            b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch executed\x85R.".to_vec(),
        ),
        (
            "the same by name",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0etouch executed\x85R.".to_vec(),
        ),
        (
            "an evaluation",
            b"\x80\x02c__builtin__\neval\nX\x05\x00\x00\x001 + 1\x85R.".to_vec(),
        ),
        (
            "an object that builds itself",
            b"\x80\x02csubprocess\nPopen\n)\x81}b.".to_vec(),
        ),
        (
            "nested lists",
            [
                b"\x80\x02".to_vec(),
                vec![b']'; 2_000_000],
                vec![b'a'; 1_999_999],
                b".".to_vec(),
            ]
            .concat(),
        ),
        (
            "marks without end",
            [b"\x80\x02".to_vec(), vec![b'('; 4_000_000], b".".to_vec()].concat(),
        ),
        (
            "a pair of pairs of pairs",
            [b"\x80\x02)".to_vec(), doubled, b".".to_vec()].concat(),
        ),
        ("a text of all memory", long(0x8d, &u64::MAX.to_le_bytes())),
        (
            "bytes of all memory",
            long(0x8e, &(1_u64 << 62).to_le_bytes()),
        ),
        (
            "a number of two gigabytes",
            long(0x8b, &i32::MAX.to_le_bytes()),
        ),
        ("a frame of all memory", long(0x95, &u64::MAX.to_le_bytes())),
        ("a memo far away", b"\x80\x02]r\xff\xff\xff\xff.".to_vec()),
        (
            "a memo that is not there",
            b"\x80\x02j\xff\xff\xff\xff.".to_vec(),
        ),
        ("an empty stack", b"\x80\x02a.".to_vec()),
        ("no end", b"\x80\x02]".to_vec()),
        ("protocol 255", b"\x80\xff.".to_vec()),
    ]
}

#[test]
fn pickles_run_nothing_and_take_no_more_than_they_are() {
    let place = Place::empty();
    fs::create_dir(place.path("dcp")).unwrap();
    for (what, bytes) in pickles() {
        for file in ["x.pdparams", "x.pt", "dcp/.metadata"] {
            fs::write(place.path(file), &bytes).unwrap();
            let path = file.split('/').next().unwrap();
            // Some are data like any other; they need not be refused, only survived.
            match what {
                "a pair of pairs of pairs" | "a memo far away" => {
                    let output = limited(&place, &["inspect", path]);
                    assert!(output.status.code().is_some(), "{what} in {file}");
                }
                _ => drop(refused(&place, &["inspect", path])),
            }
            assert!(!place.path("executed").exists(), "{what} in {file}");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A checkpoint that another tool wrote, from the fixtures of `formats`.
fn fixture(place: &Place, name: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/fixtures");
    copy(&fixtures.join(name), &place.path("x"));
}

/// A frame of Zstandard that unpacks to 128 KiB for each of `blocks`.
fn bomb(blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for block in 0..blocks {
        let last = u32::from(block + 1 == blocks);
        let header = last | 1 << 1 | (128 << 10) << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(b'x');
    }
    frame
}

#[test]
fn arrays_of_zarr_cannot_ask_for_more_than_they_are() {
    let place = Place::empty();
    fixture(&place, "orbax/zarr2");
    assert!(limited(&place, &["cat", "x", "params.w"]).status.success());
    // 13 GiB in 400 KB.
    fs::write(place.path("x/params.w/0.0"), bomb(100_000)).unwrap();
    refused(&place, &["cat", "x", "params.w"]);
    let array = |chunks: &str, shape: &str| {
        format!(
            r#"{{"chunks":{chunks},"compressor":{{"id":"zstd","level":1}},"dimension_separator":".","dtype":"<f4","fill_value":null,"filters":null,"order":"C","shape":{shape},"zarr_format":2}}"#
        )
    };
    let nested = "[".repeat(200_000);
    let arrays = [
        array("[1099511627776,3]", "[8,6]"),
        array("[0,0]", "[8,6]"),
        array(
            "[9223372036854775807,9223372036854775807]",
            "[9223372036854775807,9223372036854775807]",
        ),
        array("[1,1]", "[1099511627776,1099511627776]"),
        array("[2]", "[8,6]"),
        array("[2,3]", "[-8,6]"),
        array(
            &format!("[{}1]", "1,".repeat(100_000)),
            &format!("[{}1]", "1,".repeat(100_000)),
        ),
        nested,
    ];
    for text in arrays {
        fs::write(place.path("x/params.w/.zarray"), text).unwrap();
        refused(&place, &["cat", "x", "params.w"]);
    }
}

#[test]
fn a_pointer_to_a_step_cannot_leave_its_folder() {
    let place = Place::empty();
    fixture(&place, "deepspeed/zero1");
    fs::remove_file(place.path("x/expected.safetensors")).unwrap();
    assert!(limited(&place, &["inspect", "x"]).status.success());
    fs::rename(place.path("x/global_step3"), place.path("outside")).unwrap();
    let outside = place.path("outside");
    for name in [
        "../outside",
        outside.to_str().unwrap(),
        "..",
        "a\u{0}b",
        "..\\outside",
        "",
    ] {
        fs::write(place.path("x/latest"), name).unwrap();
        refused(&place, &["inspect", "x"]);
    }
}

#[test]
fn files_of_other_tools_that_are_noise_are_refused() {
    let place = Place::empty();
    let noise: Vec<u8> = (0..4096_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    for name in [
        "x.pt",
        "x.bin",
        "x.safetensors",
        "x.pdparams",
        "x.pdiparams",
    ] {
        for len in [0, 1, 8, 100, 4096] {
            fs::write(place.path(name), &noise[..len]).unwrap();
            refused(&place, &["inspect", name]);
        }
    }
    for fixed in ["orbax/ocdbt3", "orbax/tree", "paddle/flex"] {
        fixture(&place, fixed);
        for file in place.files("x", "") {
            let whole = fs::read(&file).unwrap();
            fs::write(&file, &noise).unwrap();
            // What is not looked at may be anything; nothing may end badly.
            let output = limited(&place, &["inspect", "x"]);
            assert!(
                output.status.code().is_some_and(|code| code <= 4),
                "{file:?}: {output:?}"
            );
            fs::write(&file, whole).unwrap();
        }
        fs::remove_dir_all(place.path("x")).unwrap();
    }
}

#[test]
fn pipes_links_and_devices_in_a_run_keep_nobody_waiting() {
    let place = Place::with_run();
    let data = place.files("run/step-00000010", ".safetensors").remove(0);
    fs::remove_file(&data).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&data)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(
        limited(&place, &["verify", "run:10", "--read-data"])
            .status
            .code(),
        Some(3)
    );
    fs::remove_file(&data).unwrap();
    symlink("/dev/zero", &data).unwrap();
    assert_eq!(
        limited(&place, &["verify", "run:10", "--read-data"])
            .status
            .code(),
        Some(3)
    );
    for name in ["a", "b", "c"] {
        symlink("..", place.path("run/step-00000020").join(name)).unwrap();
    }
    assert!(limited(&place, &["ls", "run"]).status.success());
}

#[test]
fn nothing_outside_a_run_is_deleted_through_a_link() {
    let place = Place::with_run();
    place.save("run", 30, &[]);
    let step = place.path("run/step-00000010");
    fs::rename(&step, place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), &step).unwrap();
    let pruned = limited(&place, &["prune", "run", "--keep-last", "1", "--yes"]);
    assert!(pruned.status.success(), "{pruned:?}");
    assert!(place.path("elsewhere/COMMIT").exists());
    assert_eq!(place.files("elsewhere", ".safetensors").len(), 4);
}

#[test]
fn secrets_in_addresses_are_never_shown() {
    let place = Place::empty();
    let address = "ftp://user:hunter2@host/run?token=hunter3";
    for args in [
        &["inspect", address][..],
        &["ls", address],
        &["verify", address, "--json"],
        &["--verbose", "convert", address, "out", "--to", "hf"],
        &["repair", "run:1", "--from", address],
        &["prune", address, "--keep-last", "1", "--yes"],
    ] {
        let output = place.output(args);
        let said = format!("{output:?}");
        assert!(
            !output.status.success() && !said.contains("hunter"),
            "{said}"
        );
    }
}
