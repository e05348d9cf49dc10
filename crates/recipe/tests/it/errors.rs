//! Wrong programs: what is said, of what kind it is, and which part of which statement is marked.

use cairn_recipe::{Error, Program, Tensor, Tensors};
use cairn_tensor::DType;

fn sources() -> Tensors {
    let shapes: [(&str, &[usize]); 8] = [
        ("a", &[4, 6]),
        ("b", &[4, 6]),
        ("half", &[4, 6]),
        ("narrow", &[4, 5]),
        ("l.0.q", &[8, 4]),
        ("l.1.q", &[8, 4]),
        ("l.0.k", &[4, 4]),
        ("l.1.k", &[3, 4]),
    ];
    let mut sources: Tensors = shapes
        .into_iter()
        .map(|(name, shape)| (name.to_owned(), Tensor::new(DType::F32, shape)))
        .collect();
    sources.get_mut("half").unwrap().dtype = DType::F16;
    sources
}

fn error(text: &str) -> Error {
    let compiled = Program::parse(text).and_then(|program| program.compile(&sources(), None));
    compiled.expect_err(text)
}

/// The text that the mark is under.
fn marked(error: &Error) -> &str {
    let last = error.frames().last().unwrap();
    &last.text[last.span.clone().unwrap()]
}

/// A program, the kind of what is wrong with it, and the part that is marked.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("a ->", "syntax", ""),
    ("a <- b", "syntax", "<"),
    ("a-b -> c", "syntax", "-"),
    ("a, -> c", "syntax", "->"),
    ("3a -> c", "syntax", "3"),
    ("a -> 'c", "syntax", "'c"),
    ("a -> c[2:1], axis=0", "syntax", "[2:1]"),
    ("a -> c[0:], axis=0", "syntax", "]"),
    ("a -> b^T", "syntax", "b^T"),
    ("a -> c, axis=0, d", "syntax", ""),
    ("a -> c, axes=0", "attribute", "axes=0"),
    ("a -> c, d, axis='x'", "attribute", "axis='x'"),
    ("a -> c, d, axis=0.5", "attribute", "axis=0.5"),
    ("a -> c, dtype='float17'", "attribute", "dtype='float17'"),
    (
        "a -> c, dst_dtype='float16'",
        "attribute",
        "dst_dtype='float16'",
    ),
    ("a -> c, sizes=[1, 3]", "attribute", "sizes=[1, 3]"),
    ("a -> c, num_heads=3", "attribute", "num_heads=3"),
    ("a, b -> c", "attribute", "a, b -> c"),
    ("a -> c, d", "attribute", "a -> c, d"),
    ("a, b -> c, d, axis=0", "attribute", "a, b -> c, d, axis=0"),
    (
        "a, b -> c, fused_qkv, num_heads=2, num_key_value_groups=1",
        "attribute",
        "fused_qkv",
    ),
    (
        "a, b, b -> c, fused_qkv, num_heads=2",
        "attribute",
        "fused_qkv",
    ),
    (
        "a, b, b -> c, fused_qkv, num_heads=3, num_key_value_groups=2",
        "attribute",
        "fused_qkv",
    ),
    ("a, b, b -> c, fused_ffn", "attribute", "fused_ffn"),
    (
        "a, b -> c, stack=0, fused_ffn, axis=3",
        "shape",
        "cut into [2] parts along dim 3, join [2] of them",
    ),
    ("a -> c, dequant='fp8'", "attribute", "dequant='fp8'"),
    ("a, b -> c, dequant='int4'", "attribute", "dequant='int4'"),
    ("aa -> c", "name", "aa"),
    ("a, half2 -> c, axis=0", "name", "half2"),
    (
        "l.$LAYER_ID.v -> x.$LAYER_ID",
        "placeholder",
        "l.$LAYER_ID.v",
    ),
    ("l.$LAYER_ID.q -> x", "placeholder", "x"),
    (
        "l.$LAYER_ID_OFFSET.q -> x.$LAYER_ID_OFFSET",
        "placeholder",
        "x.$LAYER_ID_OFFSET",
    ),
    ("z.* -> c, axis=0", "placeholder", "z.*"),
    ("a, b -> c, axis=2", "shape", "axis=2"),
    ("a, b -> c, axis=-3", "shape", "axis=-3"),
    ("a, narrow -> c, axis=0", "shape", "axis=0"),
    ("a -> c, d, e, axis=0", "shape", "axis=0"),
    ("a -> c, d, axis=0, sizes=[1, 2]", "shape", "axis=0"),
    ("a -> c, permute='[0, 0]'", "shape", "permute='[0, 0]'"),
    ("a -> c, reshape=[5, 5]", "shape", "reshape=[5, 5]"),
    ("a -> c, reshape=[-1, 5]", "shape", "reshape=[-1, 5]"),
    ("a -> c, pad=[3, 6]", "shape", "pad=[3, 6]"),
    ("a -> c, unpad=[5, 6]", "shape", "unpad=[5, 6]"),
    ("a -> c, interleave=3", "shape", "interleave=3"),
    ("a -> c, d, unstack=0", "shape", "unstack=0"),
    ("a, half -> c, axis=0", "dtype", "axis=0"),
    ("a -> c, d, quant=mxfp4", "shape", "quant=mxfp4"),
    ("a, b -> c, dequant=fp8", "dtype", "dequant=fp8"),
    (
        "a -> c, src_dtype=float16, dst_dtype=float32",
        "dtype",
        "src_dtype=float16",
    ),
    ("a -> c[0:100000000], axis=0", "limit", "[0:100000000]"),
    (
        "a, b, b -> c, fused_qkv, num_heads=99999999, num_key_value_groups=1",
        "limit",
        "fused_qkv",
    ),
];

#[test]
fn each_mistake_has_a_kind_and_a_mark() {
    for &(text, kind, part) in MISTAKES {
        let error = error(text);
        assert_eq!(
            (error.kind(), marked(&error)),
            (kind, part),
            "{text}: {error}"
        );
        assert_eq!(error.statement(), Some(text), "{error}");
    }
}

#[test]
fn the_way_from_the_statement_to_the_failure_is_shown_with_a_mark() {
    let text = "a -> c\nl.$LAYER_ID.q, l.$LAYER_ID.k, l.$LAYER_ID.k -> f.$LAYER_ID, fused_qkv, num_heads=4, num_key_value_groups=2, axis=0";
    let error = error(text);
    assert_eq!(
        error.to_string(),
        "dim 0 of [3, 4] cannot be cut into 2 equal parts"
    );
    assert_eq!(
        error.trace(),
        "\
statement 2    l.$LAYER_ID.q, l.$LAYER_ID.k, l.$LAYER_ID.k -> f.$LAYER_ID, fused_qkv, num_heads=4, num_key_value_groups=2, axis=0
$LAYER_ID = 1  l.1.q, l.1.k, l.1.k -> f.1, fused_qkv, num_heads=4, num_key_value_groups=2, axis=0
fused_qkv      cut into [4, 2, 2] parts along dim 0, join [8] of them
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"
    );
}

#[test]
fn near_names_are_suggested() {
    assert_eq!(
        error("narow -> c").hint().unwrap(),
        "did you mean `narrow`?"
    );
    assert_eq!(
        error("a -> c, permut=[1, 0]").hint().unwrap(),
        "did you mean `permute`?"
    );
    let targets = Tensors::from([("l.0.qq".to_owned(), Tensor::new(DType::F32, [8, 4]))]);
    let error = Program::default()
        .compile(&sources(), Some(&targets))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no source and no statement gives `l.0.qq`"
    );
    assert!(
        error.hint().unwrap().starts_with("did you mean `l.0.q`?"),
        "{:?}",
        error.hint()
    );
    assert!(error.hint().unwrap().contains("`_ -> l.0.qq`"));
}

#[test]
fn a_target_that_comes_out_otherwise_marks_the_name_that_made_it() {
    let targets = Tensors::from([("c".to_owned(), Tensor::new(DType::F32, [6, 4]))]);
    let error = Program::parse("a -> c")
        .unwrap()
        .compile(&sources(), Some(&targets))
        .unwrap_err();
    assert_eq!((error.kind(), marked(&error)), ("shape", "c"));
    assert!(error.hint().unwrap().contains("^T"));
}

#[test]
fn what_nothing_is_made_of_is_a_warning_where_targets_are_given() {
    let targets = Tensors::from([("c".to_owned(), Tensor::new(DType::F32, [4, 6]))]);
    let program = Program::parse("a -> c\nb -> d\nhalf -> _\nnothing -> _").unwrap();
    let compiled = program.compile(&sources(), Some(&targets)).unwrap();
    assert_eq!(compiled.dropped, ["half"]);
    assert_eq!(
        compiled.warnings,
        [
            "`nothing -> _` drops nothing: there is no such tensor",
            "nothing is made of `l.0.k`, `l.0.q`, `l.1.k`, `l.1.q`, `narrow`",
            "made, though no target and used for none: `d`",
        ]
    );
}
