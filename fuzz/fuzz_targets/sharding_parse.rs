//! A mesh on the first line, a tensor spec on the second: what parses prints itself so that it parses again.

#![no_main]

use cairn_sharding::{Mesh, Region, TensorSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (mesh, spec) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(mesh) = mesh.parse::<Mesh>() else {
        return;
    };
    assert_eq!(mesh.to_string().parse().ok(), Some(mesh.clone()));
    let Ok(spec) = TensorSpec::parse(&mesh, spec) else {
        return;
    };
    let printed = spec.to_string();
    assert_eq!(
        TensorSpec::parse(&mesh, &printed).ok().as_ref(),
        Some(&spec),
        "{printed}"
    );

    let whole = Region::whole(spec.shape());
    for piece in spec.pieces(mesh.max_rank()) {
        assert!(whole.contains(&piece.region), "{piece} of {printed}");
    }
});
