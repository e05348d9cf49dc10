//! How long a program as large as DeepSeek-V3 takes to compile: `cargo bench -p cairn-recipe --bench compile`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

#[path = "../tests/it/deepseek.rs"]
mod deepseek;

use cairn_recipe::Program;
use std::time::Instant;

fn main() {
    let sources = deepseek::sources();
    let seconds: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let program = Program::parse(deepseek::PROGRAM).expect("the program is one");
            let compiled = program
                .compile(&sources, None)
                .expect("it fits the sources");
            let elapsed = start.elapsed();
            std::hint::black_box(compiled);
            elapsed.as_secs_f64()
        })
        .collect();
    // A line as `cargo xtask bench` reads them.
    println!(
        r#"{{"system":"cairn","phase":"compile a recipe, {} tensors","seconds":{seconds:?},"target":{{"at_most":1.0}}}}"#,
        sources.len()
    );
}
