//! A program, and sources in the first line as `name` and dims: whatever it is, it compiles or is refused, in both directions,
//! and pieces stay inside their tensors.

#![no_main]

use cairn_recipe::{Compiled, Program, Tensor, Tensors};
use cairn_sharding::Region;
use cairn_tensor::DType;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (first, program) = text.split_once('\n').unwrap_or(("", text));
    let sources: Tensors = first.split(';').filter_map(tensor).collect();
    let Ok(program) = Program::parse(program) else {
        return;
    };
    let forwards = program.compile(&sources, None);
    let targets = forwards.as_ref().map(described).unwrap_or_default();
    for compiled in [
        forwards,
        program.compile(&sources, Some(&sources)),
        program.clone().reversed().compile(&sources, None),
        program.reversed().compile(&targets, Some(&sources)),
    ] {
        match compiled {
            Ok(compiled) => check(&compiled),
            Err(error) => drop((error.to_string(), error.trace(), error.hint())),
        }
    }
});

/// `name 4 6` as a tensor of shape [4, 6].
fn tensor(text: &str) -> Option<(String, Tensor)> {
    let mut words = text.split_whitespace();
    let name = words.next()?.to_owned();
    let shape: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
    Some((name, Tensor::new(DType::F32, shape?)))
}

fn described(compiled: &Compiled) -> Tensors {
    let targets = compiled.targets.iter();
    let tensor = |target: &cairn_recipe::Target| Tensor::new(target.dtype, target.shape.clone());
    targets
        .map(|(name, target)| (name.clone(), tensor(target)))
        .collect()
}

fn check(compiled: &Compiled) {
    for target in compiled.targets.values() {
        let whole = Region::whole(&target.shape);
        let pieces = target.pieces.iter().flatten();
        let covered = pieces.map(|piece| {
            assert!(whole.contains(&piece.region));
            piece.region.element_count()
        });
        let covered: usize = covered.sum();
        assert!(target.pieces.is_none() || covered == whole.element_count());
    }
}
