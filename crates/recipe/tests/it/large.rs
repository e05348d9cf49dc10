//! Programs as large as the largest models.

use crate::deepseek;
use cairn_recipe::{Program, Step};
use cairn_tensor::DType;

#[test]
fn deepseek_v3_comes_out_in_bfloat16_with_gate_and_up_as_one() {
    let program = Program::parse(deepseek::PROGRAM).unwrap();
    let sources = deepseek::sources();
    assert_eq!(sources.len(), 58 * 256 * 6 + 3 * 6 + 61 * 5);
    let compiled = program.compile(&sources, None).unwrap();
    assert_eq!(compiled.targets.len(), 58 * 256 * 2 + 3 * 2 + 3 + 61 * 3);
    assert_eq!(compiled.warnings, Vec::<String>::new());
    let name = "model.layers.60.mlp.experts.255.gate_up_proj.weight";
    let target = &compiled.targets[name];
    assert_eq!(
        (target.dtype, target.shape.as_slice()),
        (DType::Bf16, &[4096, 7168][..])
    );
    let pieces = target.pieces.as_ref().unwrap();
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[1].region.offset, [2048, 0]);
    let [Step::Dequant { scales, .. }, Step::Cast(DType::Bf16)] = pieces[1].steps.as_slice() else {
        panic!("{:?}", pieces[1].steps);
    };
    assert_eq!(
        scales.source.name,
        "model.layers.60.mlp.experts.255.up_proj.weight_scale_inv"
    );
    assert!(
        compiled.targets["model.layers.7.input_layernorm.weight"]
            .pieces
            .is_some()
    );
}
