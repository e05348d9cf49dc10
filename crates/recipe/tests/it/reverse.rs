//! Programs from right to left: what cannot be undone, and what is found out from the targets.

use cairn_recipe::{Error, Program, Tensor, Tensors};
use cairn_tensor::DType;

fn tensors(list: &[(&str, DType, &[usize])]) -> Tensors {
    let tensor = |(name, dtype, shape): &(&str, DType, &[usize])| {
        (name.to_string(), Tensor::new(*dtype, *shape))
    };
    list.iter().map(tensor).collect()
}

fn back(
    text: &str,
    sources: &Tensors,
    targets: Option<&Tensors>,
) -> Result<Vec<(String, Vec<usize>)>, Error> {
    let compiled = Program::parse(text)?.reversed().compile(sources, targets)?;
    let shape = |(name, target): (String, cairn_recipe::Target)| (name, target.shape);
    Ok(compiled.targets.into_iter().map(shape).collect())
}

#[test]
fn a_cast_without_the_type_before_is_refused_and_the_statement_named() {
    let sources = tensors(&[("b", DType::Bf16, &[2]), ("d", DType::F32, &[1])]);
    let error = back("c -> d\na -> b, dtype=bfloat16", &sources, None).unwrap_err();
    assert_eq!(
        (error.kind(), error.statement()),
        ("reverse", Some("a -> b, dtype=bfloat16"))
    );
    assert!(error.hint().unwrap().contains("src_dtype"));
    assert!(
        error
            .trace()
            .ends_with("                     ^^^^^^^^^^^^^^\n"),
        "{}",
        error.trace()
    );
}

#[test]
fn joined_tensors_are_cut_alike_unless_targets_tell_their_sizes() {
    let sources = tensors(&[("c", DType::F32, &[8])]);
    let alike = back("a, b -> c, axis=0", &sources, None).unwrap();
    assert_eq!(alike, [("a".into(), vec![4]), ("b".into(), vec![4])]);
    let targets = tensors(&[("a", DType::F32, &[3]), ("b", DType::F32, &[5])]);
    let told = back("a -> t\nt, b -> c, axis=0", &sources, Some(&targets)).unwrap();
    assert_eq!(told, [("a".into(), vec![3]), ("b".into(), vec![5])]);
    let written = back("a, b -> c, axis=0, sizes=[3, 5]", &sources, None);
    assert_eq!(written.unwrap(), told);
}

#[test]
fn a_reshape_and_a_pad_need_targets_to_be_undone() {
    let sources = tensors(&[("b", DType::F32, &[4, 3])]);
    for text in ["a -> b, reshape=[4, 3]", "a -> b, pad=[4, 3]"] {
        assert_eq!(
            back(text, &sources, None).unwrap_err().kind(),
            "reverse",
            "{text}"
        );
    }
    let targets = tensors(&[("a", DType::F32, &[2, 3])]);
    assert_eq!(
        back("a -> b, pad_to_multiple=4", &sources, Some(&targets)).unwrap(),
        [("a".into(), vec![2, 3])]
    );
}

#[test]
fn what_is_dropped_forwards_keeps_the_models_own_value_backwards() {
    let (sources, targets) = (
        tensors(&[("b", DType::F32, &[2])]),
        tensors(&[("a", DType::F32, &[2]), ("x", DType::F32, &[9])]),
    );
    let program = Program::parse("a -> b\nx -> _\n_ -> b.bias")
        .unwrap()
        .reversed();
    let compiled = program.compile(&sources, Some(&targets)).unwrap();
    assert_eq!(compiled.targets["x"].pieces, None);
    assert!(compiled.targets["a"].pieces.is_some());
}

#[test]
fn dequantised_weights_are_quantised_and_ties_taken_from_the_first() {
    let sources = tensors(&[
        ("t", DType::Bf16, &[256, 128]),
        ("m", DType::Bf16, &[3, 64]),
        ("head", DType::F32, &[1]),
        ("embed", DType::F32, &[1]),
    ]);
    let text = "
        w, w_scale_inv -> t, dequant=fp8, src_dtype=float32, dst_dtype=bfloat16
        m_blocks, m_scales -> m, dequant=mxfp4, src_dtype=float32, dst_dtype=bfloat16
        e -> embed, head, tie=true";
    let compiled = Program::parse(text)
        .unwrap()
        .reversed()
        .compile(&sources, None)
        .unwrap();
    assert_eq!(compiled.targets["w"].dtype, DType::F8E4M3);
    assert_eq!(compiled.targets["w_scale_inv"].shape, [2, 1]);
    assert_eq!(compiled.targets["m_blocks"].shape, [3, 2, 16]);
    assert_eq!(compiled.targets["m_scales"].shape, [3, 2]);
    let piece = &compiled.targets["e"].pieces.as_ref().unwrap()[0];
    assert_eq!(piece.source.as_ref().unwrap().name, "embed");
}

#[test]
fn fused_layouts_of_shards_are_read_as_their_source_holds_them() {
    let mut sources = tensors(&[("f", DType::F32, &[8])]);
    sources.get_mut("f").unwrap().shards = 2;
    let compiled = Program::parse("g, u -> f, fused_ffn, axis=0")
        .unwrap()
        .reversed();
    let compiled = compiled.compile(&sources, None).unwrap();
    let starts = compiled.targets["u"].pieces.as_ref().unwrap().iter();
    let starts: Vec<usize> = starts
        .map(|piece| piece.source.as_ref().unwrap().region.offset[0])
        .collect();
    assert_eq!(starts, [2, 6]);
}

#[test]
fn nothing_is_kept_where_nobody_asks_for_it() {
    let sources = tensors(&[("b", DType::F32, &[2])]);
    let made = back("a -> b\nrope.$LAYER_ID -> _\nx -> _", &sources, None).unwrap();
    assert_eq!(made, [("a".into(), vec![2])]);
    let targets = tensors(&[("a", DType::F32, &[2])]);
    let error = back("a -> b\nrope.$LAYER_ID -> _", &sources, Some(&targets)).unwrap_err();
    assert_eq!(
        (error.kind(), error.hint().unwrap().contains("targets")),
        ("placeholder", true)
    );
}
