//! Goal: plans of regular layouts grow with the ranks, not with their square.

use cairn_reshard::{Options, Plan, plan};
use cairn_sharding::{Mesh, TensorSpec};

fn planned(mesh: [&str; 2], text: [&str; 2]) -> Plan {
    let spec =
        |side: usize| TensorSpec::parse(&mesh[side].parse::<Mesh>().unwrap(), text[side]).unwrap();
    plan(&spec(0), &spec(1), &Options::default()).unwrap()
}

#[test]
fn a_plan_for_a_thousand_ranks_is_linear_in_them() {
    for (mesh, text) in [
        (
            ["dp=32,tp=32", "dp=32,tp=32"],
            ["f32[4096@tp, 4096]", "f32[4096@tp+dp, 4096]"],
        ),
        (
            ["dp=32,tp=32", "dp=32,tp=32"],
            ["f32[4096@tp, 4096]", "f32[4096@tp, 4096 | flat(dp)]"],
        ),
        (
            ["dp=1024", "dp=1024"],
            ["f32[4096, 4096]", "f32[4096@dp, 4096]"],
        ),
        (
            ["dp=1024", "dp=1024 on 1024..2048"],
            ["f32[4096, 4096]", "f32[4096@dp, 4096]"],
        ),
        (
            ["dp=1024", "dp=1024"],
            ["f32[4096@dp, 4096]", "f32[4096, 4096]"],
        ),
        (
            ["dp=1024", "dp=512"],
            ["f32[4096@dp, 4096]", "f32[4096, 4096 | flat(dp)]"],
        ),
        (
            ["dp=1024", "dp=1024"],
            ["f32[4096, 4096 | sum(dp)]", "f32[4096@dp, 4096]"],
        ),
    ] {
        let plan = planned(mesh, text);
        let actions: usize = plan.steps.iter().map(|step| step.actions.len()).sum();
        assert!(
            actions <= 3 * 1024,
            "{} → {}: {actions} actions",
            text[0],
            text[1]
        );
    }
}

#[test]
fn the_largest_tensors_do_not_overflow() {
    let largest = usize::MAX;
    let mesh = ["dp=4", "dp=4"];
    for [source, target] in [
        ["| at(dp=0)", ""],
        ["", "| at(dp=3)"],
        ["| flat(dp)", ""],
        ["| sum(dp)", ""],
        ["| at(dp=0)", "| flat(dp)"],
    ] {
        let text = [source, target].map(|suffix| format!("u8[{largest} {suffix}]"));
        let plan = planned(mesh, [&text[0], &text[1]]);
        assert!(plan.to_string().contains("moved in"));
    }
}
