//! DeepSeek-V3 as Hugging Face has it, by its names and shapes: 61 layers, 256 experts in all but the first three, FP8 in
//! blocks of 128 × 128 with a scale for each.

use cairn_recipe::{Tensor, Tensors};
use cairn_tensor::DType;

const LAYERS: usize = 61;
const DENSE_LAYERS: usize = 3;
const EXPERTS: usize = 256;
const HIDDEN: usize = 7168;
const EXPERT: usize = 2048;
const DENSE: usize = 18432;
const BLOCK: usize = 128;

/// Every weight to `bfloat16`, the gate and up projections of each expert and layer as one.
pub(crate) const PROGRAM: &str = r#"
model.layers.$LAYER_ID.self_attn.o_proj.weight, model.layers.$LAYER_ID.self_attn.o_proj.weight_scale_inv -> model.layers.$LAYER_ID.self_attn.o_proj.weight, dequant=fp8, dtype=bfloat16
model.layers.$LAYER_ID.self_attn.q_b_proj.weight, model.layers.$LAYER_ID.self_attn.q_b_proj.weight_scale_inv -> model.layers.$LAYER_ID.self_attn.q_b_proj.weight, dequant=fp8, dtype=bfloat16
model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_proj.weight, model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_proj.weight_scale_inv -> gate.$LAYER_ID.$EXPERT_ID, dequant=fp8, dtype=bfloat16
model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.up_proj.weight, model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.up_proj.weight_scale_inv -> up.$LAYER_ID.$EXPERT_ID, dequant=fp8, dtype=bfloat16
gate.$LAYER_ID.$EXPERT_ID, up.$LAYER_ID.$EXPERT_ID -> model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_up_proj.weight, axis=0
model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.down_proj.weight, model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.down_proj.weight_scale_inv -> model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.down_proj.weight, dequant=fp8, dtype=bfloat16
model.layers.$LAYER_ID.mlp.gate_proj.weight, model.layers.$LAYER_ID.mlp.gate_proj.weight_scale_inv -> gate.$LAYER_ID, dequant=fp8, dtype=bfloat16
model.layers.$LAYER_ID.mlp.up_proj.weight, model.layers.$LAYER_ID.mlp.up_proj.weight_scale_inv -> up.$LAYER_ID, dequant=fp8, dtype=bfloat16
gate.$LAYER_ID, up.$LAYER_ID -> model.layers.$LAYER_ID.mlp.gate_up_proj.weight, axis=0
"#;

/// The sources: about 91,000 tensors with their scales.
pub(crate) fn sources() -> Tensors {
    let mut tensors = Tensors::new();
    let mut scaled = |name: String, rows: usize, columns: usize| {
        let scales = [rows.div_ceil(BLOCK), columns.div_ceil(BLOCK)];
        tensors.insert(format!("{name}_scale_inv"), Tensor::new(DType::F32, scales));
        tensors.insert(name, Tensor::new(DType::F8E4M3, [rows, columns]));
    };
    let mut mlp = |of: String, width: usize| {
        scaled(format!("{of}.gate_proj.weight"), width, HIDDEN);
        scaled(format!("{of}.up_proj.weight"), width, HIDDEN);
        scaled(format!("{of}.down_proj.weight"), HIDDEN, width);
    };
    for layer in 0..LAYERS {
        let of = format!("model.layers.{layer}.mlp");
        match layer < DENSE_LAYERS {
            true => mlp(of, DENSE),
            false => (0..EXPERTS).for_each(|expert| mlp(format!("{of}.experts.{expert}"), EXPERT)),
        }
    }
    for layer in 0..LAYERS {
        let of = format!("model.layers.{layer}.self_attn");
        scaled(format!("{of}.o_proj.weight"), HIDDEN, 16384);
        scaled(format!("{of}.q_b_proj.weight"), 24576, 1536);
    }
    for layer in 0..LAYERS {
        let norm = format!("model.layers.{layer}.input_layernorm.weight");
        tensors.insert(norm, Tensor::new(DType::Bf16, [HIDDEN]));
    }
    tensors
}
