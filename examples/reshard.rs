//! Plans moves of a tensor between layouts and prints what each amounts to: `cargo run --example reshard`.

#![expect(clippy::print_stdout, reason = "a program")]

use cairn::reshard::{Options, execute, plan};
use cairn::sharding::{Mesh, TensorSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let moves = [
        ("tp=4", "f32[1024@tp, 512]", "tp=4", "f32[1024, 512]"),
        ("tp=4", "f32[1024@tp, 512]", "tp=4", "f32[1024, 512@tp]"),
        ("tp=4", "f32[1024, 512]", "tp=4", "f32[1024@tp, 512]"),
        (
            "dp=4",
            "f32[1024, 512 | sum(dp)]",
            "dp=4",
            "f32[1024@dp, 512]",
        ),
        (
            "dp=2,tp=2",
            "f32[1024@tp, 512 | flat(dp)]",
            "tp=3",
            "f32[1024@tp, 512]",
        ),
    ];
    for (source_mesh, source, target_mesh, target) in moves {
        let source = TensorSpec::parse(&source_mesh.parse::<Mesh>()?, source)?;
        let target = TensorSpec::parse(&target_mesh.parse::<Mesh>()?, target)?;
        let plan = plan(&source, &target, &Options::default())?;
        println!("{source} on {source_mesh}  →  {target} on {target_mesh}\n{plan}\n");

        // Run it on ranks in memory: every rank's buffer is filled, whatever it was.
        let sources: Vec<Vec<u8>> = (0..=source.max_rank())
            .map(|rank| vec![0; source.local_element_count(rank) * 4])
            .collect();
        let mut targets = vec![Vec::new(); target.max_rank() + 1];
        execute(&plan, &sources, &mut targets)?;
    }
    Ok(())
}
