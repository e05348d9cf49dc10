//! How long a program as large as DeepSeek-V3 takes to compile: `cargo bench -p cairn-recipe --bench compile`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

#[path = "../tests/it/deepseek.rs"]
mod deepseek;

use cairn_recipe::Program;
use std::time::Instant;

fn main() {
    let sources = deepseek::sources();
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            let program = Program::parse(deepseek::PROGRAM).expect("the program is one");
            let compiled = program
                .compile(&sources, None)
                .expect("it fits the sources");
            let elapsed = start.elapsed();
            std::hint::black_box(compiled);
            elapsed
        })
        .min()
        .unwrap_or_default();
    println!(
        "recipe compile: {} sources in {best:.2?} (best of 5)",
        sources.len()
    );
}
