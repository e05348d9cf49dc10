//! Operations beyond AOA's, each against what it means.

use crate::array::{Array, Arrays, blocks, evaluate, target};
use cairn_recipe::{Compiled, Program, Step, Tensor, Tensors};
use cairn_sharding::Region;
use cairn_tensor::DType;

fn compile(text: &str, sources: &[(&str, DType, &[usize])]) -> (Compiled, Arrays) {
    let described: Tensors = sources
        .iter()
        .map(|(name, dtype, shape)| (name.to_string(), Tensor::new(*dtype, *shape)))
        .collect();
    let arrays = sources.iter();
    let arrays = arrays.map(|(name, _, shape)| (name.to_string(), Array::new(name, shape)));
    let compiled = Program::parse(text)
        .unwrap()
        .compile(&described, None)
        .unwrap();
    (compiled, arrays.collect())
}

/// The one target of a program on `F32` sources, worked out.
fn made(text: &str, sources: &[(&str, &[usize])]) -> Array {
    let sources: Vec<_> = sources
        .iter()
        .map(|(name, shape)| (*name, DType::F32, *shape))
        .collect();
    let (compiled, arrays) = compile(text, &sources);
    let mut made = evaluate(&compiled, &arrays);
    assert_eq!(made.len(), 1, "{made:?}");
    made.pop_first().unwrap().1
}

#[test]
fn a_vocabulary_is_padded_with_rows_and_cut_down_again() {
    let padded = made("w -> w, pad_to_multiple=4, fill=0.5", &[("w", &[3, 2])]);
    assert_eq!(padded.shape, [4, 2]);
    assert_eq!(padded.elements[4..], ["w4", "w5", "fill0.5", "fill0.5"]);
    assert_eq!(
        made("w -> w, pad_to_multiple=4, dim=-1", &[("w", &[2, 3])]).elements[3],
        "fill0"
    );
    let whole = Array::new("w", &[3, 2]);
    assert_eq!(
        made("w -> w, pad=[5, 4], unpad=[3, 2]", &[("w", &[3, 2])]),
        whole
    );
    assert_eq!(
        made("w -> w, unpad=[-1, 1]", &[("w", &[3, 2])]).elements,
        ["w0", "w2", "w4"]
    );
}

#[test]
fn experts_are_stacked_as_a_new_first_dim_and_taken_apart() {
    let stacked = made(
        "e.* -> all, stack=0",
        &[("e.2", &[2]), ("e.10", &[2]), ("e.1", &[2])],
    );
    assert_eq!(stacked.shape, [3, 2]);
    assert_eq!(
        stacked.elements,
        ["e.10", "e.11", "e.20", "e.21", "e.100", "e.101"]
    );
    let (compiled, arrays) = compile("all -> e[0:2], unstack=1", &[("all", DType::F32, &[3, 2])]);
    let made = evaluate(&compiled, &arrays);
    assert_eq!(
        made["e_1"],
        Array {
            shape: vec![3],
            elements: vec!["all1".into(), "all3".into(), "all5".into()]
        }
    );
}

#[test]
fn rotary_halves_become_pairs_and_pairs_halves() {
    let pairs = made("w -> w, interleave=4", &[("w", &[8])]);
    assert_eq!(
        pairs.elements,
        ["w0", "w2", "w1", "w3", "w4", "w6", "w5", "w7"]
    );
    let halves = made("w -> w, deinterleave=4", &[("w", &[8])]);
    assert_eq!(
        halves.elements,
        ["w0", "w2", "w1", "w3", "w4", "w6", "w5", "w7"]
    );
    let pairs = made("w -> w, interleave=6, dim=1", &[("w", &[1, 6])]);
    assert_eq!(pairs.elements, ["w0", "w3", "w1", "w4", "w2", "w5"]);
    let back = made(
        "w -> w, interleave=6, dim=-1, deinterleave=6",
        &[("w", &[2, 6])],
    );
    assert_eq!(back, Array::new("w", &[2, 6]));
}

#[test]
fn operations_of_a_statement_run_from_left_to_right() {
    let first_cut = made(
        "a^T, b^T -> c, axis=-1, reshape=[4, 3], permute=[]",
        &[("a", &[2, 3]), ("b", &[2, 3])],
    );
    let joined = Array::concat(&[Array::new("a", &[2, 3]), Array::new("b", &[2, 3])], 0);
    assert_eq!(
        first_cut,
        joined.permute(&[1, 0]).reshape(&[4, 3]).permute(&[1, 0])
    );
    let cut_after = made("a -> b, _, reshape=[-1], axis=0", &[("a", &[2, 3])]);
    assert_eq!(cut_after.elements, ["a0", "a1", "a2"]);
}

const FP8: &str = "w, s -> w, dequant=fp8, block=[2, 3]";
const FP8_SOURCES: [(&str, DType, &[usize]); 2] =
    [("w", DType::F8E4M3, &[5, 7]), ("s", DType::F32, &[3, 3])];

fn scaled() -> Array {
    let (w, s) = (Array::new("w", &[5, 7]), Array::new("s", &[3, 3]));
    Array::build(&[5, 7], |at| {
        format!("{}*{}", w.at(at), s.at(&[at[0] / 2, at[1] / 3]))
    })
}

#[test]
fn fp8_elements_are_multiplied_by_the_scale_of_their_block() {
    let (compiled, arrays) = compile(FP8, &FP8_SOURCES);
    assert_eq!(compiled.targets["w"].dtype, DType::F32);
    assert_eq!(evaluate(&compiled, &arrays)["w"], scaled());
}

#[test]
fn a_part_of_dequantised_elements_reads_only_its_elements_and_scales() {
    let text = format!(
        "{FP8}, dtype=bfloat16\nw^T -> a, b, axis=0, sizes=[4, 3]\nb -> c, d, axis=1, sizes=[3, 2]"
    );
    let (compiled, arrays) = compile(&text, &FP8_SOURCES);
    let expected = scaled()
        .slice(&Region {
            offset: vec![3, 4],
            extent: vec![2, 3],
        })
        .permute(&[1, 0]);
    assert_eq!(target(&compiled.targets["d"], &arrays), expected);
    let [piece] = compiled.targets["d"].pieces.as_deref().unwrap() else {
        panic!("one piece");
    };
    assert_eq!(piece.source.as_ref().unwrap().region.extent, [2, 3]);
    let Step::Dequant { scales, phase, .. } = &piece.steps[0] else {
        panic!("{:?}", piece.steps);
    };
    assert_eq!(
        (phase.as_slice(), scales.source.region.offset.as_slice()),
        (&[1, 1][..], &[1, 1][..])
    );
    assert_eq!(scales.source.region.extent, [2, 2]);
}

#[test]
fn weights_and_scales_that_were_cut_differently_still_find_each_other() {
    let text = "
        w.0, w.1 -> w, axis=0
        s.0, s.1 -> s, axis=1
        w, s -> t, dequant=fp8, block=[2, 2]";
    let f8 = DType::F8E4M3;
    let (compiled, arrays) = compile(
        text,
        &[
            ("w.0", f8, &[3, 4]),
            ("w.1", f8, &[1, 4]),
            ("s.0", DType::F32, &[2, 1]),
            ("s.1", DType::F32, &[2, 1]),
        ],
    );
    let w = Array::concat(&[arrays["w.0"].clone(), arrays["w.1"].clone()], 0);
    let s = Array::concat(&[arrays["s.0"].clone(), arrays["s.1"].clone()], 1);
    let expected = Array::build(&[4, 4], |at| {
        format!("{}*{}", w.at(at), s.at(&[at[0] / 2, at[1] / 2]))
    });
    assert_eq!(evaluate(&compiled, &arrays)["t"], expected);
}

#[test]
fn mxfp4_blocks_are_two_elements_a_byte_with_a_scale_for_each_block() {
    let (compiled, arrays) = compile(
        "w_blocks, w_scales -> w, dequant=mxfp4, permute=[0, 2, 1]\nw -> e[0:2], unstack=0",
        &[
            ("w_blocks", DType::U8, &[2, 3, 2, 16]),
            ("w_scales", DType::U8, &[2, 3, 2]),
        ],
    );
    let (blocks, scales) = (&arrays["w_blocks"], &arrays["w_scales"]);
    let expected = Array::build(&[64, 3], |at| {
        let (column, row) = (at[0], at[1]);
        let byte = blocks.at(&[1, row, column / 32, column % 32 / 2]);
        // A byte of the scales is read as a power of two: one element, so one part.
        format!(
            "{byte}.{}*{}.0",
            column % 2,
            scales.at(&[1, row, column / 32])
        )
    });
    assert_eq!(evaluate(&compiled, &arrays)["e_1"], expected);
}

#[test]
fn quantised_elements_come_with_the_scales_of_their_blocks() {
    let (compiled, arrays) = compile(
        "t -> w, s, quant=fp8, block=[2, 2]",
        &[("t", DType::Bf16, &[3, 4])],
    );
    assert_eq!(compiled.targets["w"].dtype, DType::F8E4M3);
    assert_eq!(
        (
            compiled.targets["s"].dtype,
            compiled.targets["s"].shape.as_slice()
        ),
        (DType::F32, &[2, 2][..])
    );
    let made = evaluate(&compiled, &arrays);
    assert_eq!(made["s"], blocks(&arrays["t"], &[2, 2]));
}

#[test]
fn values_quantised_to_mxfp4_are_packed_as_they_are_stored() {
    let (compiled, _) = compile(
        "t -> w_blocks, w_scales, quant=mxfp4",
        &[("t", DType::Bf16, &[3, 64])],
    );
    for (name, shape) in [("w_blocks", &[3, 2, 16][..]), ("w_scales", &[3, 2])] {
        let made = &compiled.targets[name];
        assert_eq!((made.dtype, made.shape.as_slice()), (DType::U8, shape));
    }
}

#[test]
fn a_part_of_quantised_elements_is_that_part_of_the_whole() {
    let quant = "t -> w, s, quant=fp8, block=[2, 2]";
    let source = [("t", DType::Bf16, &[4, 6][..])];
    let (whole, arrays) = compile(quant, &source);
    for (cut, dim, sizes) in [
        ("axis=1, sizes=[2, 4]", 1, [2, 4]),
        ("axis=0, sizes=[1, 3]", 0, [1, 3]),
    ] {
        let (compiled, _) = compile(&format!("{quant}\nw -> a, b, {cut}\ns -> _"), &source);
        let expected = target(&whole.targets["w"], &arrays).split(dim, &sizes);
        assert_eq!(target(&compiled.targets["b"], &arrays), expected[1]);
    }
}

#[test]
fn adjacent_parts_of_a_source_are_one_piece_again() {
    let (compiled, _) = compile(
        "a -> b, c, d, axis=1\nb, c, d -> e, axis=1",
        &[("a", DType::F32, &[2, 6])],
    );
    assert_eq!(compiled.targets["e"].pieces.as_ref().unwrap().len(), 1);
}

#[test]
fn names_in_quotes_may_have_any_character() {
    let text = r#"'a-b/c $LAYER_ID*' -> "x-$LAYER_ID", optional=true"#;
    // A literal name has no placeholder, so the other has no id to take from it.
    assert_eq!(
        Program::parse(text)
            .unwrap()
            .compile(&Tensors::new(), None)
            .unwrap_err()
            .kind(),
        "placeholder"
    );
    let (compiled, _) = compile(
        "'1st $LAYER_ID*'^T -> \"x y\"\n\"l-$LAYER_ID/w\" -> \"m-$LAYER_ID/w\"",
        &[
            ("1st $LAYER_ID*", DType::F32, &[2, 3]),
            ("l-07/w", DType::F32, &[1]),
        ],
    );
    assert_eq!(
        compiled.targets.keys().collect::<Vec<_>>(),
        ["m-07/w", "x y"]
    );
}

#[test]
fn placeholders_also_match_what_statements_before_made() {
    let (compiled, _) = compile(
        "a.$STAGE -> t.$STAGE\nt.$STAGE -> b.$STAGE",
        &[("a.0", DType::F32, &[1]), ("a.3", DType::F32, &[1])],
    );
    assert_eq!(compiled.targets.keys().collect::<Vec<_>>(), ["b.0", "b.3"]);
}

#[test]
fn a_statement_may_go_on_over_lines_after_a_comma_or_the_arrow() {
    let joined = made(
        "a,  # the first\n  b ->\n  c,\n  axis=0 # along rows\n\n",
        &[("a", &[1]), ("b", &[1])],
    );
    assert_eq!(joined.elements, ["a0", "b0"]);
}
