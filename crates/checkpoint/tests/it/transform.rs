//! Sources made by recipes: every target, on every layout, has the elements that an element-by-element reading of its steps gives.

use crate::common::{Model, Specs, bytes, cut, f32s, latest, load_as, memory, one, spec};
use cairn_checkpoint::{
    Error, LoadOptions, LoadPlan, RewriteOptions, SharedSource, Source, Strictness, Transformed,
    Wanted, export_hf, recast,
};
use cairn_recipe::{Compiled, Operand, Piece, Program, SourceBox, Step, Target, Tensor};
use cairn_sharding::{Region, TensorSpec};
use cairn_tensor::{DType, Overflow, cast, element_count, read_f64, row_major_strides};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A whole tensor, element by element.
#[derive(Debug, Clone, PartialEq)]
struct Array {
    dtype: DType,
    shape: Vec<usize>,
    elements: Vec<Vec<u8>>,
}

impl Array {
    fn new(dtype: DType, shape: &[usize], bytes: &[u8]) -> Self {
        let elements = bytes.chunks(dtype.bits() / 8).map(<[u8]>::to_vec);
        Self {
            dtype,
            shape: shape.to_vec(),
            elements: elements.collect(),
        }
    }

    fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
        let strides = row_major_strides(shape);
        let count = element_count(shape).unwrap();
        let index = |flat: usize| {
            (0..shape.len())
                .map(|d| flat / strides[d] % shape[d])
                .collect()
        };
        (0..count).map(index).collect()
    }

    fn at(&self, index: &[usize]) -> &Vec<u8> {
        let strides = row_major_strides(&self.shape);
        &self.elements[index
            .iter()
            .zip(&strides)
            .map(|(i, s)| i * s)
            .sum::<usize>()]
    }

    /// The array of this shape whose element at an index is one of this array, or made of it.
    fn map(&self, shape: &[usize], dtype: DType, of: impl Fn(&[usize]) -> Vec<u8>) -> Self {
        let elements = Self::indices(shape).iter().map(|index| of(index)).collect();
        Self {
            dtype,
            shape: shape.to_vec(),
            elements,
        }
    }

    fn slice(&self, region: &Region) -> Self {
        self.map(&region.extent, self.dtype, |index| {
            let index: Vec<usize> = index
                .iter()
                .zip(&region.offset)
                .map(|(i, o)| i + o)
                .collect();
            self.at(&index).clone()
        })
    }

    fn float(&self, index: &[usize]) -> f32 {
        let value = recast_one(self.dtype, DType::F32, self.at(index));
        f32::from_le_bytes(value.try_into().unwrap())
    }

    fn after(&self, step: &Step, wholes: &BTreeMap<String, Array>) -> Self {
        match step {
            Step::Permute(dims) => {
                let shape: Vec<usize> = dims.iter().map(|dim| self.shape[*dim]).collect();
                self.map(&shape, self.dtype, |index| {
                    let mut from = vec![0; index.len()];
                    for (dim, of) in dims.iter().enumerate() {
                        from[*of] = index[dim];
                    }
                    self.at(&from).clone()
                })
            }
            Step::Reshape(to) => Self {
                shape: to.clone(),
                ..self.clone()
            },
            Step::Slice(region) => self.slice(region),
            Step::Cast(to) => self.map(&self.shape, *to, |index| {
                recast_one(self.dtype, *to, self.at(index))
            }),
            Step::Dequant {
                scales,
                block,
                phase,
            } => {
                let scales = evaluate(&scales.source, &scales.steps, wholes);
                self.map(&self.shape, DType::F32, |index| {
                    let at = |dim: usize| (index[dim] + phase[dim]) / block[dim];
                    let scale = scales.float(&(0..index.len()).map(at).collect::<Vec<_>>());
                    (self.float(index) * scale).to_le_bytes().to_vec()
                })
            }
            step => unreachable!("{step:?} has a test of its own"),
        }
    }
}

fn recast_one(from: DType, to: DType, element: &[u8]) -> Vec<u8> {
    let mut target = vec![0; to.bits() / 8];
    cast(from, to, element, &mut target, Overflow::Native).unwrap();
    target
}

fn evaluate(source: &SourceBox, steps: &[Step], wholes: &BTreeMap<String, Array>) -> Array {
    let first = wholes[&source.name].slice(&source.region);
    steps
        .iter()
        .fold(first, |array, step| array.after(step, wholes))
}

/// What a target is by the meaning of its pieces.
fn oracle(target: &Target, wholes: &BTreeMap<String, Array>) -> Vec<u8> {
    let count = element_count(&target.shape).unwrap();
    let mut elements = vec![None; count];
    let strides = row_major_strides(&target.shape);
    for piece in target.pieces.as_ref().unwrap() {
        let made = match (&piece.source, piece.steps.as_slice()) {
            (Some(source), steps) => evaluate(source, steps, wholes),
            (None, [Step::Fill(value)]) => {
                let value = recast_one(DType::F64, target.dtype, &value.to_le_bytes());
                let count = piece.region.element_count();
                Array::new(target.dtype, &piece.region.extent, &value.repeat(count))
            }
            other => panic!("{other:?}"),
        };
        for index in Array::indices(&piece.region.extent) {
            let place = (0..index.len()).map(|d| (index[d] + piece.region.offset[d]) * strides[d]);
            elements[place.sum::<usize>()] = Some(made.at(&index).clone());
        }
    }
    elements.into_iter().flat_map(Option::unwrap).collect()
}

fn wholes(model: &Model) -> BTreeMap<String, Array> {
    let array = |name: &String, spec: &TensorSpec| {
        Array::new(spec.dtype(), spec.shape(), &model.whole[name])
    };
    let specs = model.specs.iter();
    specs
        .map(|(name, spec)| (name.clone(), array(name, spec)))
        .collect()
}

/// Sources on some layout, as a checkpoint that is saved and opened.
fn sources(layout: usize) -> Vec<(&'static str, &'static str)> {
    match layout {
        0 => vec![
            ("a", "f32[12, 8]"),
            ("b", "bf16[6, 4, 10]"),
            ("c", "u8[24]"),
        ],
        1 => vec![
            ("a", "f32[12@tp, 8]"),
            ("b", "bf16[6, 4@tp, 10]"),
            ("c", "u8[24@dp]"),
        ],
        2 => vec![
            ("a", "f32[12, 8@tp | flat(dp)]"),
            ("b", "bf16[6@dp, 4, 10@tp]"),
            ("c", "u8[24 | flat(dp)]"),
        ],
        _ => vec![
            ("a", "f32[12@dp+tp, 8]"),
            ("b", "bf16[6, 4, 10 | flat(dp)]"),
            ("c", "u8[24@tp]"),
        ],
    }
}

const MESH: &str = "dp=2,tp=2";

fn specs(texts: &[(&str, &str)]) -> Specs {
    let parse = |(name, text): &(&str, &str)| (name.to_string(), spec(MESH, text));
    texts.iter().map(parse).collect()
}

fn saved(specs: Specs) -> (Model, SharedSource) {
    let model = Model::new(specs, 1);
    let store = memory();
    model.save_ok(&store, 1);
    (model, Arc::new(latest(&store)))
}

/// Numbers that later choices are taken from.
#[derive(Debug, Clone)]
struct Choices(Vec<usize>);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        self.0.pop().unwrap_or(0) % end.max(1)
    }

    fn region(&mut self, shape: &[usize]) -> Region {
        let mut region = Region::whole(shape);
        for (dim, len) in shape.iter().enumerate() {
            if self.below(2) == 0 {
                let offset = self.below(*len);
                region = region.with_dim(dim, offset, 1 + self.below(len - offset));
            }
        }
        region
    }

    fn permutation(&mut self, ndim: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..ndim).collect();
        (0..ndim)
            .map(|_| left.remove(self.below(left.len())))
            .collect()
    }

    /// A shape with as many elements.
    fn shape(&mut self, mut count: usize) -> Vec<usize> {
        let mut shape = Vec::new();
        while count > 1 && shape.len() < 3 {
            let divisors: Vec<usize> = (1..=count).filter(|d| count.is_multiple_of(*d)).collect();
            let dim = divisors[self.below(divisors.len())];
            shape.push(dim);
            count /= dim;
        }
        shape.push(count);
        shape
    }

    fn step(&mut self, shape: &[usize]) -> Step {
        match self.below(4) {
            0 => Step::Permute(self.permutation(shape.len())),
            1 => Step::Reshape(self.shape(element_count(shape).unwrap())),
            2 => Step::Slice(self.region(shape)),
            _ => Step::Cast([DType::F32, DType::Bf16, DType::F16, DType::I32][self.below(4)]),
        }
    }

    /// A target of two pieces and a constant: what some steps give, cut in two, and rows after it.
    fn target(&mut self, wholes: &BTreeMap<String, Array>) -> Target {
        let name = ["a", "b", "c"][self.below(3)].to_string();
        let region = self.region(&wholes[&name].shape);
        let source = SourceBox { name, region };
        let mut array = evaluate(&source, &[], wholes);
        let mut steps = Vec::new();
        for _ in 0..self.below(5) {
            let step = self.step(&array.shape);
            array = array.after(&step, wholes);
            steps.push(step);
        }
        let mut target = Target {
            dtype: array.dtype,
            shape: array.shape.clone(),
            pieces: Some(vec![Piece {
                region: Region::whole(&array.shape),
                source: Some(source),
                steps,
            }]),
        };
        self.cut(&mut target);
        self.pad(&mut target);
        target
    }

    fn cut(&mut self, target: &mut Target) {
        let dim = self.below(target.shape.len());
        let Some(len) = target.shape.get(dim).copied().filter(|len| *len > 1) else {
            return;
        };
        let at = 1 + self.below(len - 1);
        let whole = target.pieces.take().unwrap().remove(0);
        let part = |offset: usize, extent: usize| {
            let region = whole.region.with_dim(dim, offset, extent);
            let mut steps = whole.steps.clone();
            steps.push(Step::Slice(region.clone()));
            Piece {
                region,
                steps,
                ..whole.clone()
            }
        };
        target.pieces = Some(vec![part(0, at), part(at, len - at)]);
    }

    fn pad(&mut self, target: &mut Target) {
        let rows = self.below(3);
        if rows == 0 || target.shape.is_empty() {
            return;
        }
        let region = Region::whole(&target.shape).with_dim(0, target.shape[0], rows);
        target.shape[0] += rows;
        target.pieces.as_mut().unwrap().push(Piece {
            region,
            source: None,
            steps: vec![Step::Fill(1.5)],
        });
    }

    /// A layout for a tensor of this shape.
    fn spec(&mut self, dtype: DType, shape: &[usize]) -> TensorSpec {
        let mut axes = vec!["@dp", "@tp", "", ""];
        let mut dims = Vec::new();
        for len in shape {
            let axis = axes.remove(self.below(axes.len()));
            axes.push("");
            dims.push(format!("{len}{axis}"));
        }
        let dims = dims.join(", ");
        let flat = match self.below(3) {
            0 if !dims.contains("@dp") && !shape.is_empty() => " | flat(dp)",
            _ => "",
        };
        spec(MESH, &format!("{dtype}[{dims}{flat}]"))
    }
}

fn compiled(targets: impl IntoIterator<Item = (String, Target)>) -> Compiled {
    Compiled {
        targets: targets.into_iter().collect(),
        ..Compiled::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_recipes_give_every_layout_the_elements_they_say(
        layout in 0..4_usize,
        choices in prop::collection::vec(0..1000_usize, 60),
    ) {
        let (model, base) = saved(specs(&sources(layout)));
        let wholes = wholes(&model);
        let mut choices = Choices(choices);
        let targets = (0..2).map(|index| (format!("t{index}"), choices.target(&wholes)));
        let compiled = compiled(targets.collect::<Vec<_>>());
        let made = Transformed::new(base, &compiled).unwrap();
        let layouts: Specs = compiled.targets.iter()
            .map(|(name, target)| (name.clone(), choices.spec(target.dtype, &target.shape)))
            .collect();
        let (_, loaded) = load_as(&made, &layouts, &LoadOptions::default()).unwrap();
        for ((name, rank), bytes) in loaded {
            let whole = oracle(&compiled.targets[&name], &wholes);
            prop_assert_eq!(bytes, cut(&layouts[&name], rank, &whole), "`{}` on rank {}", name, rank);
        }
    }
}

/// A box of `name` as it is.
fn boxed(name: &str, region: &str) -> SourceBox {
    SourceBox {
        name: name.into(),
        region: region.parse().unwrap(),
    }
}

fn from(region: &str, source: SourceBox, steps: Vec<Step>) -> Piece {
    Piece {
        region: region.parse().unwrap(),
        source: Some(source),
        steps,
    }
}

fn target(dtype: DType, shape: &[usize], pieces: Vec<Piece>) -> Target {
    Target {
        dtype,
        shape: shape.to_vec(),
        pieces: Some(pieces),
    }
}

fn whole_of(source: &dyn Source, name: &str) -> Vec<u8> {
    let tensor = source.find(name).unwrap();
    let dims: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
    let spec = spec("tp=1", &format!("{}[{}]", tensor.dtype, dims.join(", ")));
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    let (_, memory) = load_as(source, &one(name, spec), &options).unwrap();
    memory.into_values().next().unwrap()
}

#[test]
fn joined_and_transposed_tensors_are_read_where_they_lie() {
    let (_, base) = saved(specs(&[("a", "f32[512, 256]"), ("b", "f32[512, 256]")]));
    let parts = vec![
        from(
            "0:256,0:256",
            boxed("a", "0:256,0:256"),
            vec![Step::Permute(vec![1, 0])],
        ),
        from(
            "0:256,256:512",
            boxed("b", "0:512,0:256"),
            vec![Step::Permute(vec![1, 0])],
        ),
    ];
    let compiled = compiled([("fused".into(), target(DType::F32, &[256, 768], parts))]);
    let made = Transformed::new(base, &compiled).unwrap();
    let spec = spec("tp=2", "f32[256, 768@tp]");
    let rank = |rank| {
        let plan = LoadPlan::new(
            &made,
            &[Wanted::new("fused", &spec, rank)],
            &Strictness::EXACT,
        );
        plan.unwrap().cost().clone()
    };
    // Rank 0 has the upper half of `a` and 128 rows of `b`; a block is 64 KiB.
    for rank in [rank(0), rank(1)] {
        assert_eq!(rank.target_bytes, 256 * 384 * 4);
        assert!(
            rank.read_bytes <= rank.target_bytes + 4 * (64 << 10),
            "{rank:?}"
        );
    }
}

#[test]
fn a_cast_reads_only_what_it_needs() {
    let (model, base) = saved(specs(&[("a", "f32[1024, 256]")]));
    let made = recast(base, DType::Bf16, |_| true).unwrap();
    let spec = spec("tp=4", "bf16[1024@tp, 256]");
    let wanted = [Wanted::new("a", &spec, 1)];
    let plan = LoadPlan::new(made.as_ref(), &wanted, &Strictness::EXACT).unwrap();
    assert_eq!(plan.cost().read_bytes, 256 * 256 * 2);
    let whole = &wholes(&model)["a"];
    let expected = whole.after(&Step::Cast(DType::Bf16), &BTreeMap::new());
    assert_eq!(whole_of(made.as_ref(), "a"), expected.elements.concat());
}

#[test]
fn a_long_tensor_is_worked_out_in_parts() {
    // More elements in one read than are worked out at once, and an odd number of them.
    let count = 5_000_003;
    let (model, base) = saved(one("a", spec("tp=1", &format!("i8[{count}]"))));
    let part = from(
        &format!("0:{count}"),
        boxed("a", &format!("0:{count}")),
        vec![Step::Cast(DType::U8)],
    );
    let compiled = compiled([("a".into(), target(DType::U8, &[count], vec![part]))]);
    let made = Transformed::new(base, &compiled).unwrap();
    let mut expected = vec![0; count];
    cast(
        DType::I8,
        DType::U8,
        &model.whole["a"],
        &mut expected,
        Overflow::Native,
    )
    .unwrap();
    assert!(whole_of(&made, "a") == expected);
}

#[test]
fn integers_and_scaled_floats_are_not_recast_and_names_can_be_left_out() {
    let texts = [
        ("a", "f32[4]"),
        ("b", "f8_e4m3[4]"),
        ("c", "i64[4]"),
        ("d", "f16[2]"),
    ];
    let (model, base) = saved(specs(&texts));
    let made = recast(base, DType::Bf16, |name| name != "d").unwrap();
    let dtypes = ["a", "b", "c", "d"].map(|name| made.find(name).unwrap().dtype);
    assert_eq!(dtypes, [DType::Bf16, DType::F8E4M3, DType::I64, DType::F16]);
    for name in ["b", "c", "d"] {
        assert_eq!(whole_of(made.as_ref(), name), model.whole[name]);
    }
}

#[test]
fn recipes_can_follow_each_other_and_be_exported() {
    let (model, base) = saved(specs(&[("a", "f32[6, 4]")]));
    let part = from(
        "0:4,0:6",
        boxed("a", "0:6,0:4"),
        vec![Step::Permute(vec![1, 0])],
    );
    let turned = compiled([("t".into(), target(DType::F32, &[4, 6], vec![part]))]);
    let first = recast(base, DType::Bf16, |_| true).unwrap();
    let first = recast(first, DType::F32, |_| true).unwrap();
    let second = Transformed::new(first, &turned).unwrap();
    let whole = &wholes(&model)["a"];
    let expected = [
        Step::Cast(DType::Bf16),
        Step::Cast(DType::F32),
        Step::Permute(vec![1, 0]),
    ]
    .iter()
    .fold(whole.clone(), |array, step| {
        array.after(step, &BTreeMap::new())
    });
    assert_eq!(whole_of(&second, "t"), expected.elements.concat());
    let store = memory();
    export_hf(&second, &store, &["t"], 1 << 20, &RewriteOptions::default()).unwrap();
    let file = store.get("model.safetensors").unwrap();
    assert!(file.ends_with(&expected.elements.concat()));
}

#[test]
fn a_tensor_that_is_made_twice_has_two_names() {
    let (_, base) = saved(specs(&[("a", "f32[4]"), ("b", "f32[4]")]));
    let same = |name: &str| {
        target(
            DType::F32,
            &[4],
            vec![from("0:4", boxed(name, "0:4"), vec![])],
        )
    };
    let compiled =
        compiled([("x", "a"), ("y", "a"), ("z", "b")].map(|(to, of)| (to.into(), same(of))));
    let made = Transformed::new(base, &compiled).unwrap();
    assert_eq!(made.aliases(), [("y".into(), "x".into())].into());
    assert_eq!(made.names(), ["x", "y", "z"]);
}

#[test]
fn what_nothing_feeds_keeps_its_value_and_is_not_missing() {
    let (_, base) = saved(specs(&[("a", "u8[4]")]));
    let part = from("0:4", boxed("a", "0:4"), vec![]);
    let mut compiled = compiled([("a".into(), target(DType::U8, &[4], vec![part]))]);
    let own = Target {
        dtype: DType::U8,
        shape: vec![2],
        pieces: None,
    };
    compiled.targets.insert("new".into(), own);
    let made = Transformed::new(base, &compiled).unwrap();
    assert_eq!(made.names(), ["a"]);
    let wanted = specs(&[("a", "u8[4]"), ("new", "u8[2]")]);
    let (report, memory) = load_as(&made, &wanted, &LoadOptions::default()).unwrap();
    assert_eq!(memory[&("new".to_string(), 0)], [0xAA, 0xAA]);
    assert_eq!(report.problems.kept, ["new"]);
    assert!(report.problems.is_empty());
    let stranger = specs(&[("a", "u8[4]"), ("other", "u8[2]")]);
    let error = load_as(&made, &stranger, &LoadOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Keys(_)), "{error}");
}

fn scales(name: &str, region: &str) -> Operand {
    Operand {
        source: boxed(name, region),
        steps: Vec::new(),
    }
}

#[test]
fn scaled_blocks_meet_their_scales_on_every_layout() {
    let mut whole = specs(&[("w", "f8_e4m3[10, 12]"), ("s", "f32[3, 4]")]);
    let (mut model, _) = saved(whole.clone());
    model.whole.insert(
        "s".into(),
        f32s(&(1..13).map(|n| n as f32 * 0.3).collect::<Vec<_>>()),
    );
    let store = memory();
    model.save_ok(&store, 1);
    let base: SharedSource = Arc::new(latest(&store));
    let dequant = Step::Dequant {
        scales: scales("s", "0:3,1:3"),
        block: vec![4, 4],
        phase: vec![2, 1],
    };
    let steps = vec![dequant, Step::Permute(vec![1, 0]), Step::Cast(DType::Bf16)];
    let part = from("0:10,0:8", boxed("w", "2:8,1:10"), steps);
    let made = target(DType::Bf16, &[10, 8], vec![part]);
    let expected = oracle(&made, &wholes(&model));
    let compiled = compiled([("t".into(), made)]);
    let made = Transformed::new(base, &compiled).unwrap();
    for text in [
        "bf16[10@tp, 8]",
        "bf16[10, 8@tp | flat(dp)]",
        "bf16[10@dp, 8@tp]",
    ] {
        whole = one("t", spec(MESH, text));
        let (_, memory) = load_as(&made, &whole, &LoadOptions::default()).unwrap();
        for ((_, rank), bytes) in memory {
            assert_eq!(
                bytes,
                cut(&whole["t"], rank, &expected),
                "{text} on rank {rank}"
            );
        }
    }
}

/// Floats of a few magnitudes, without NaN.
fn values(count: usize) -> Vec<f32> {
    let bytes = bytes("values", 3, 4 * count);
    let word = |at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());
    (0..count).map(|at| word(at) as f32 / 1e9 - 2.0).collect()
}

#[test]
fn what_is_quantised_comes_back_within_half_a_step() {
    let values = values(9 * 10);
    let mut model = Model::new(specs(&[("w", "f32[9, 10]")]), 1);
    model.whole.insert("w".into(), f32s(&values));
    let store = memory();
    model.save_ok(&store, 1);
    let block = vec![4, 3];
    let dtype = DType::F8E4M3;
    let quant = Step::Quant {
        dtype,
        block: block.clone(),
    };
    let scale = Step::QuantScales {
        dtype,
        block: block.clone(),
    };
    let first = compiled([
        (
            "q".into(),
            target(
                dtype,
                &[9, 10],
                vec![from("0:9,0:10", boxed("w", "0:9,0:10"), vec![quant])],
            ),
        ),
        (
            "s".into(),
            target(
                DType::F32,
                &[3, 4],
                vec![from("0:3,0:4", boxed("w", "0:9,0:10"), vec![scale])],
            ),
        ),
    ]);
    let quantised: SharedSource =
        Arc::new(Transformed::new(Arc::new(latest(&store)), &first).unwrap());
    let dequant = Step::Dequant {
        scales: scales("s", "0:3,0:4"),
        block,
        phase: vec![0, 0],
    };
    let part = from("0:9,0:10", boxed("q", "0:9,0:10"), vec![dequant]);
    let second = compiled([("w".into(), target(DType::F32, &[9, 10], vec![part]))]);
    let scale_bytes = whole_of(quantised.as_ref(), "s");
    let back = Transformed::new(quantised, &second).unwrap();
    let back = whole_of(&back, "w");
    for (at, value) in values.iter().enumerate() {
        let block = at / 10 / 4 * 4 + at % 10 / 3;
        let scale = read_f64(DType::F32, &scale_bytes, block).unwrap();
        let found = read_f64(DType::F32, &back, at).unwrap();
        // Three bits of mantissa, or the smallest step near zero.
        let step = (f64::from(value.abs()) / 16.0).max(scale / 1024.0) * 1.001;
        assert!(
            (found - f64::from(*value)).abs() <= step,
            "{value} became {found}"
        );
    }
}

/// The nearest element of FP4 by looking at all of them; of two that are as near, the even one.
fn nearest_fp4(value: f64) -> u8 {
    let magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let distance = |code: &u8| (magnitudes[usize::from(*code)] - value.abs()).abs();
    let near = |a: &u8, b: &u8| {
        distance(a)
            .total_cmp(&distance(b))
            .then((a % 2).cmp(&(b % 2)))
    };
    let code = (0..8).min_by(near).unwrap();
    code | if value < 0.0 { 8 } else { 0 }
}

#[test]
fn values_become_mxfp4_as_the_format_defines_it() {
    let mut values = values(3 * 64);
    // A block of zeros, a block of which nothing is below half of the greatest, and ties.
    values[32..64].fill(0.0);
    values[64..96].fill(-1.75);
    values[96..99].copy_from_slice(&[7.0, 2.5, -3.5]);
    let mut model = Model::new(specs(&[("t", "f32[3, 64]")]), 1);
    model.whole.insert("t".into(), f32s(&values));
    let store = memory();
    model.save_ok(&store, 1);
    let program = Program::parse("t -> b, s, quant=mxfp4").unwrap();
    let sources = [("t".to_string(), Tensor::new(DType::F32, vec![3, 64]))];
    let compiled = program.compile(&sources.into(), None).unwrap();
    let made = Transformed::new(Arc::new(latest(&store)), &compiled).unwrap();
    let (packed, scales) = (whole_of(&made, "b"), whole_of(&made, "s"));
    for (block, values) in values.chunks(32).enumerate() {
        let greatest = values
            .iter()
            .fold(0.0_f32, |greatest, value| greatest.max(value.abs()));
        // The greatest power of two in the block; of zeros, four.
        let power = (-120..120)
            .rev()
            .find(|power| 2_f32.powi(*power) <= greatest);
        let exponent = power.unwrap_or(2) - 2;
        assert_eq!(i32::from(scales[block]), exponent + 127, "block {block}");
        let codes = values
            .iter()
            .map(|value| nearest_fp4(f64::from(*value) / 2_f64.powi(exponent)));
        let codes: Vec<u8> = codes.collect();
        let expected: Vec<u8> = codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
        assert_eq!(packed[16 * block..][..16], expected, "block {block}");
    }
}

#[test]
fn packed_elements_are_unpacked_wherever_a_target_is_cut() {
    // Eight bytes with two elements each; a scale for four elements.
    let mut model = Model::new(
        specs(&[("blocks", "u8[2, 4]"), ("scales", "f8_e8m0[2, 2]")]),
        1,
    );
    model.whole.insert(
        "blocks".into(),
        vec![0x21, 0x43, 0x65, 0x87, 0x10, 0xF2, 0x34, 0x76],
    );
    model
        .whole
        .insert("scales".into(), vec![127, 128, 126, 129]);
    let store = memory();
    model.save_ok(&store, 1);
    let unpack = Step::Reinterpret {
        from: DType::U8,
        to: DType::F4,
    };
    let dequant = Step::Dequant {
        scales: scales("scales", "0:2,0:2"),
        block: vec![1, 4],
        phase: vec![0, 0],
    };
    let steps = vec![unpack, dequant, Step::Permute(vec![1, 0])];
    let part = from("0:8,0:2", boxed("blocks", "0:2,0:4"), steps);
    let compiled = compiled([("w".into(), target(DType::F32, &[8, 2], vec![part]))]);
    let made = Transformed::new(Arc::new(latest(&store)), &compiled).unwrap();
    let e2m1 = [
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
    ];
    let rows = [[1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 15, 4, 3, 6, 7]];
    let scale = [[1.0, 2.0], [0.5, 4.0]];
    let mut expected = Vec::new();
    for column in 0..8 {
        for row in 0..2 {
            expected.push(e2m1[rows[row][column]] * scale[row][column / 4]);
        }
    }
    let expected = f32s(&expected);
    for text in [
        "f32[8, 2]",
        "f32[8@dp, 2@tp]",
        "f32[8@dp+tp, 2 ]",
        "f32[8, 2 | flat(dp+tp)]",
    ] {
        let layout = one("w", spec("dp=3,tp=2", text));
        let (_, memory) = load_as(&made, &layout, &LoadOptions::default()).unwrap();
        for ((_, rank), bytes) in memory {
            assert_eq!(
                bytes,
                cut(&layout["w"], rank, &expected),
                "{text} on rank {rank}"
            );
        }
    }
}

#[test]
fn what_does_not_hold_together_is_refused() {
    let (_, base) = saved(specs(&[("a", "f32[4, 6]"), ("z", "c64[4]")]));
    let all = || boxed("a", "0:4,0:6");
    let dequant = |block: Vec<usize>| Step::Dequant {
        scales: scales("a", "0:1,0:1"),
        block,
        phase: vec![0, 0],
    };
    for (piece, reason) in [
        (
            from("0:4,0:6", boxed("b", "0:4,0:6"), vec![]),
            "there is no `b`",
        ),
        (
            from("0:4,0:6", boxed("a", "1:4,0:6"), vec![]),
            "`1:4,0:6` is not in `a`",
        ),
        (from("1:4,0:6", all(), vec![]), "`1:4,0:6` is not in [4, 6]"),
        (
            from("0:4,0:6", boxed("a", "0:4,0:5"), vec![]),
            "the steps give f32[4, 5]",
        ),
        (
            from("0:4,0:6", all(), vec![Step::Permute(vec![1, 1])]),
            "does not permute",
        ),
        (
            from("0:4,0:6", all(), vec![Step::Reshape(vec![5, 5])]),
            "cannot be reshaped",
        ),
        (
            from(
                "0:4,0:6",
                all(),
                vec![Step::Slice("0:5,0:1".parse().unwrap())],
            ),
            "is not in [4, 6]",
        ),
        (
            from("0:4,0:6", all(), vec![Step::Cast(DType::Bf16)]),
            "the steps give bf16",
        ),
        (
            from("0:4,0:6", all(), vec![Step::Fill(0.0)]),
            "is a constant",
        ),
        (
            from("0:4,0:6", all(), vec![dequant(vec![2, 2])]),
            "the scales are",
        ),
        (
            from("0:4,0:6", all(), vec![dequant(vec![0, 2])]),
            "has no blocks",
        ),
        (
            from("0:4,0:1", boxed("z", "0:4"), vec![Step::Cast(DType::F32)]),
            "c64 cannot be cast",
        ),
        (
            Piece {
                source: None,
                ..from("0:4,0:6", all(), vec![])
            },
            "no source",
        ),
    ] {
        let compiled = compiled([("t".into(), target(DType::F32, &[4, 6], vec![piece]))]);
        let error = Transformed::new(base.clone(), &compiled).err().unwrap();
        assert!(error.to_string().contains(reason), "{error}: {reason}");
    }
}
