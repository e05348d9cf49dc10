//! Drivers that cannot be used: the error says why, and states in host memory are saved all the same.
//!
//! A C compiler makes a library that is called like the driver's, and a process of its own finds it first.

use cairn_checkpoint::{Bytes, Checkpointer, SaveOptions, State, World};
use cairn_device::testing::SharedBytes;
use cairn_device::{Error, cuda};
use cairn_sharding::{Mesh, TensorSpec};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Names every function that is asked of the driver.
const DRIVER_SOURCE: &str = include_str!("../../../device/src/cuda/driver.rs");

/// The process that has the driver of the test that started it: asks for a device, and saves what needs none.
#[test]
#[ignore = "a process of its own, which the tests beside it start"]
fn process() {
    let error = cuda::device(0).unwrap_err();
    let kind = match error {
        Error::Driver { .. } => "driver",
        Error::NoDevice { .. } => "no device",
        _ => "other",
    };
    println!("{kind}: {error}");
    let memory = SharedBytes::new(1000).memory();
    let spec = TensorSpec::parse(&Mesh::single(), "u8[1000]").unwrap();
    let mut state = State::new(0);
    state.bytes("w", &spec, Bytes::fenced(memory)).unwrap();
    let run = Checkpointer::new(Arc::new(cairn_store::Memory::new()), World::single());
    let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
    saving.fence(&[]).unwrap();
    println!("saved {}", saving.wait().unwrap().step);
}

/// A driver without the function `lacking`, whose other functions all return `result`.
fn source(lacking: &str, result: u32) -> String {
    let words = DRIVER_SOURCE.split('"').skip(1).step_by(2);
    let names = words.filter(|word| word.starts_with("cu") && *word != "cuGetErrorString");
    let functions = names
        .filter(|name| *name != lacking)
        .map(|name| format!("int {name}(void) {{ return {result}; }}\n"));
    let explain = "int cuGetErrorString(int result, const char **text) { *text = \"it says so\"; return 0; }\n";
    functions.collect::<String>() + explain
}

/// Compiles a driver into `folder`; `false` if there is no compiler.
#[expect(clippy::print_stdout, reason = "says why a test is skipped")]
fn compile(source: &str, folder: &Path) -> bool {
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-x", "c", "-", "-o"])
        .arg(folder.join("libcuda.so"))
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut compiler) = compiler else {
        println!("skipped: there is no C compiler `cc`");
        return false;
    };
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(source.as_bytes()).unwrap();
    drop(input);
    assert!(compiler.wait().unwrap().success(), "{source}");
    true
}

/// Runs [`process`] with this driver, which must make it say `expected` and save.
fn assert_says(source: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    if !compile(source, folder.path()) {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["driver::process", "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("saved 1"), "{text}");
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_driver_that_does_not_fit_its_kernel_module_is_named_and_host_state_is_saved() {
    let text =
        "driver: the CUDA driver cannot be used: it says so (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)";
    assert_says(&source("", 803), text);
}

#[test]
fn a_driver_without_a_function_is_too_old_and_host_state_is_saved() {
    let text =
        "driver: the CUDA driver cannot be used: it is too old: it has no `cuStreamWaitEvent`";
    assert_says(&source("cuStreamWaitEvent", 0), text);
}

#[test]
fn a_driver_without_devices_says_so_and_host_state_is_saved() {
    let text = "no device: there is no device cuda:0: the driver has 0";
    assert_says(&source("", 100), text);
}
