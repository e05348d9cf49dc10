//! Random programs against the plain way: every target has each element once, and it is the right one.
//! The same programs, run from right to left, give back what there was.

use crate::array::{Array, Arrays, described, evaluate};
use cairn_recipe::{Program, Tensor, Tensors};
use cairn_tensor::DType;
use proptest::prelude::*;

/// A program in the making, and what its tensors are.
struct Walk {
    statements: Vec<String>,
    live: Vec<(String, Array)>,
    made: usize,
}

impl Walk {
    fn name(&mut self) -> String {
        self.made += 1;
        format!("t.{}", self.made)
    }

    fn one(&mut self, at: usize, attribute: &str, work: impl FnOnce(&Array) -> Array) {
        let (name, array) = self.live.remove(at);
        let new = self.name();
        self.statements
            .push(format!("{name} -> {new}, {attribute}"));
        self.live.push((new, work(&array)));
    }

    /// One of the things that can be done to a tensor, chosen by numbers.
    fn step(&mut self, [which, at, dim, how]: [usize; 4]) {
        let at = at % self.live.len();
        let shape = self.live[at].1.shape.clone();
        let ndim = shape.len();
        match which % 9 {
            0 if ndim > 0 => self.split(at, dim % ndim, how),
            1 if ndim > 0 => self.concat(at, dim % ndim),
            2 => {
                let mut order: Vec<usize> = (0..ndim).collect();
                order.rotate_left(if ndim > 0 { dim % ndim } else { 0 });
                if how % 2 == 1 {
                    order.reverse();
                }
                if !order.is_empty() {
                    self.one(at, &format!("permute={order:?}"), |array| {
                        array.permute(&order)
                    });
                }
            }
            3 | 4 => {
                let to = reshaped(&shape, dim, how);
                self.one(at, &format!("reshape={to:?}"), |array| array.reshape(&to));
            }
            5 => self.stack(at, dim % (ndim + 1)),
            6 if ndim > 0 && shape[dim % ndim].is_multiple_of(2) && shape[dim % ndim] > 0 => {
                let dim = dim % ndim;
                let heads = (1..=shape[dim])
                    .filter(|head| head % 2 == 0 && shape[dim].is_multiple_of(*head));
                let heads: Vec<usize> = heads.collect();
                let head = heads[how % heads.len()];
                self.one(at, &format!("interleave={head}, dim={dim}"), |array| {
                    Array::build(&shape, |index| {
                        let mut from = index.to_vec();
                        let (start, inside) = (index[dim] / head * head, index[dim] % head);
                        from[dim] = start + inside / 2 + inside % 2 * (head / 2);
                        array.at(&from).to_owned()
                    })
                });
            }
            7 => {
                let (name, array) = self.live.remove(at);
                let new = self.name();
                self.statements.push(format!("{name}^T -> {new}"));
                let order: Vec<usize> = (0..ndim).rev().collect();
                self.live.push((new, array.permute(&order)));
            }
            _ if ndim > 0 => self.pad(at, dim % ndim, how % 3),
            _ => {}
        }
    }

    fn split(&mut self, at: usize, dim: usize, how: usize) {
        let (name, array) = self.live.remove(at);
        let len = array.shape[dim];
        let first = how % (len + 1);
        let sizes = [first, len - first];
        let names = [self.name(), self.name()];
        self.statements.push(format!(
            "{name} -> {}, axis={dim}, sizes={sizes:?}",
            names.join(", ")
        ));
        self.live
            .extend(names.into_iter().zip(array.split(dim, &sizes)));
    }

    fn concat(&mut self, at: usize, dim: usize) {
        let shape = self.live[at].1.shape.clone();
        let fits = |other: &Array| {
            other.shape.len() == shape.len()
                && (0..shape.len()).all(|d| d == dim || other.shape[d] == shape[d])
        };
        let (parts, rest): (Vec<_>, Vec<_>) =
            self.live.drain(..).partition(|(_, array)| fits(array));
        self.live = rest;
        let (names, arrays): (Vec<String>, Vec<Array>) = parts.into_iter().unzip();
        let new = self.name();
        let negative = dim as i64 - shape.len() as i64;
        self.statements
            .push(format!("{} -> {new}, axis={negative}", names.join(", ")));
        self.live.push((new, Array::concat(&arrays, dim)));
    }

    fn stack(&mut self, at: usize, dim: usize) {
        let shape = self.live[at].1.shape.clone();
        let (parts, rest): (Vec<_>, Vec<_>) = self
            .live
            .drain(..)
            .partition(|(_, array)| array.shape == shape);
        self.live = rest;
        let (names, arrays): (Vec<String>, Vec<Array>) = parts.into_iter().unzip();
        let new = self.name();
        self.statements
            .push(format!("{} -> {new}, stack={dim}", names.join(", ")));
        let mut wide = shape.clone();
        wide.insert(dim, 1);
        let arrays: Vec<Array> = arrays.iter().map(|array| array.reshape(&wide)).collect();
        self.live.push((new, Array::concat(&arrays, dim)));
    }

    fn pad(&mut self, at: usize, dim: usize, more: usize) {
        let mut shape = self.live[at].1.shape.clone();
        let len = shape[dim];
        shape[dim] += more;
        self.one(at, &format!("pad={shape:?}, fill=7"), |array| {
            Array::build(&shape, |index| match index[dim] < len {
                true => array.at(index).to_owned(),
                false => "fill7".to_owned(),
            })
        });
    }
}

/// Another shape with as many elements: two dims as one, one as two, or a new one.
fn reshaped(shape: &[usize], dim: usize, how: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if shape.is_empty() {
        return vec![1; how % 3];
    }
    let dim = dim % shape.len();
    match how % 3 {
        0 if dim + 1 < shape.len() => {
            let len = shape.remove(dim);
            shape[dim] *= len;
        }
        1 => {
            let factor = (2..=shape[dim])
                .find(|factor| shape[dim].is_multiple_of(*factor))
                .unwrap_or(1);
            shape[dim] /= factor;
            shape.insert(dim + how / 3 % 2, factor);
        }
        _ => {
            let count: usize = shape.iter().product();
            let factor = (1..=count.max(1))
                .rev()
                .find(|factor| factor * factor <= count && count.is_multiple_of(*factor));
            let factor = factor.unwrap_or(1);
            shape = vec![factor, count / factor];
        }
    }
    shape
}

/// Sources, a program, and the tensors it leaves.
fn walks() -> impl Strategy<Value = (Arrays, Vec<String>, Arrays)> {
    let dims = || prop::collection::vec(prop_oneof![1 => Just(1usize), 4 => 2usize..7], 0..4);
    let shapes = prop::collection::vec((dims(), 1usize..3), 1..3);
    let steps = prop::collection::vec([0usize..9, 0..16, 0..4, 0..12], 0..9);
    (shapes, steps).prop_map(|(shapes, steps)| {
        let shapes = shapes
            .into_iter()
            .flat_map(|(shape, count)| vec![shape; count]);
        let sources: Arrays = shapes
            .enumerate()
            .map(|(index, shape)| {
                (
                    format!("s{index}"),
                    Array::new(&format!("s{index}:"), &shape),
                )
            })
            .collect();
        let mut walk = Walk {
            statements: Vec::new(),
            live: sources.clone().into_iter().collect(),
            made: 0,
        };
        for step in steps {
            walk.step(step);
        }
        (sources, walk.statements, walk.live.into_iter().collect())
    })
}

const LEFT: &[&str] = &[
    "a",
    "a, b",
    "a, b, b",
    "a^T, b",
    "b, w",
    "w, w",
    "u, u",
    "e, e",
    "e",
    "s",
    "s, s",
    "large",
    "large, large",
    "x.*",
    "x.$LAYER_ID",
    "_",
    "c",
    "c, d",
];
const RIGHT: &[&str] = &[
    "c",
    "c, d",
    "c, d, f",
    "c[0:4]",
    "y.$LAYER_ID",
    "a",
    "_",
    "c, _",
];
/// Attributes, with numbers that are too large for anything.
const ATTRIBUTES: &[&str] = &[
    "axis=0",
    "axis=-1",
    "axis=1",
    "axis=9007199254740991",
    "sizes=[1, 1]",
    "sizes=[9223372036854775807, 1]",
    "permute=[1, 0]",
    "permute=[-1, 0]",
    "permute=[]",
    "dtype=f8_e4m3",
    "dtype=u8",
    "src_dtype=f32, dst_dtype=bf16",
    "reshape=[-1]",
    "reshape=[3, 2]",
    "reshape=[9223372036854775807, 9]",
    "pad=[4, 4]",
    "pad=[-1, 9223372036854775807]",
    "pad_to_multiple=9007199254740991",
    "pad_to_multiple=4",
    "fill=1e300",
    "unpad=[1, -1]",
    "unpad=[]",
    "interleave=2",
    "deinterleave=9007199254740991",
    "dim=1",
    "dim=-9",
    "stack=0",
    "stack=2",
    "stack=-1",
    "unstack=0",
    "dequant=fp8",
    "dequant=mxfp4",
    "quant=fp8",
    "quant=mxfp4",
    "block=[1, 2]",
    "block=[1, 1]",
    "block=[1]",
    "block=[0, 1]",
    "tie=true",
    "fused_qkv",
    "fused_qkv_old",
    "fused_ffn",
    "num_heads=4",
    "num_key_value_groups=2",
    "num_heads=65536",
];

/// Tensors of odd shapes.
fn hostile() -> Tensors {
    let shapes: [(&str, &[usize]); 9] = [
        ("a", &[2, 3]),
        ("u", &[2, 2]),
        ("w", &[1, 2]),
        ("b", &[2, 3]),
        ("e", &[0, 3]),
        ("s", &[]),
        ("x.0", &[4]),
        ("x.18446744073709551615", &[4]),
        ("large", &[usize::MAX, usize::MAX]),
    ];
    let tensor =
        |(name, shape): (&str, &[usize])| (name.to_owned(), Tensor::new(DType::F32, shape));
    shapes.into_iter().map(tensor).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_element_of_every_target_is_the_right_one((sources, statements, targets) in walks()) {
        let program = Program::from_statements(&statements).unwrap();
        let compiled = program.compile(&described(&sources), None).unwrap();
        prop_assert_eq!(evaluate(&compiled, &sources), targets.clone());
        // The same if the targets are declared.
        let declared = program.compile(&described(&sources), Some(&described(&targets))).unwrap();
        prop_assert_eq!(declared.targets, compiled.targets);
    }

    #[test]
    fn a_program_from_right_to_left_gives_back_what_there_was((sources, statements, targets) in walks()) {
        let program = Program::from_statements(&statements).unwrap().reversed();
        let back = program.compile(&described(&targets), Some(&described(&sources))).unwrap();
        prop_assert_eq!(evaluate(&back, &targets), sources);
    }

    #[test]
    fn a_program_and_then_the_rest_of_it_is_the_whole(
        (sources, statements, targets) in walks(),
        cut in 0usize..9,
    ) {
        let (first, rest) = statements.split_at(cut.min(statements.len()));
        let first = Program::from_statements(first).unwrap();
        let both = first.then(Program::from_statements(rest).unwrap());
        let compiled = both.compile(&described(&sources), None).unwrap();
        prop_assert_eq!(evaluate(&compiled, &sources), targets);
    }

    #[test]
    fn no_program_makes_it_panic(
        statements in prop::collection::vec(
            (
                prop::sample::select(LEFT),
                prop::sample::select(RIGHT),
                prop::collection::vec(prop::sample::select(ATTRIBUTES), 0..4),
            ),
            1..4,
        ),
    ) {
        let sources = hostile();
        let texts = statements.iter().map(|(left, right, attributes)| {
            format!("{left} -> {}", [&[*right], attributes.as_slice()].concat().join(", "))
        });
        if let Ok(program) = Program::from_statements(texts) {
            let _ = program.compile(&sources, None);
            let _ = program.compile(&sources, Some(&sources));
            let _ = program.reversed().compile(&sources, Some(&sources));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-c$_.*^T'\"\\[\\]0-9,=>: -]{0,40}") {
        let sources = described(&Arrays::from([("a".into(), Array::new("a", &[2, 3]))]));
        if let Ok(program) = Program::parse(&text) {
            let _ = program.compile(&sources, None);
            let _ = program.reversed().compile(&sources, Some(&sources));
        }
    }
}
