//! A box of a source and what is done to it, checked step by step.

use super::view::is_view;
use crate::source::{Source, StoredTensor};
use cairn_recipe::{SourceBox, Step};
use cairn_sharding::Region;
use cairn_tensor::{DType, Strided, element_count};

/// What steps make of a box, or of nothing.
///
/// Casts do not care where elements lie, so they stand before the views that end the steps.
pub(super) struct Expression {
    /// What is read.
    pub(super) source: Option<SourceBox>,
    /// The tensor that the box is of.
    pub(super) tensor: StoredTensor,
    pub(super) steps: Vec<Step>,
    /// How many of the steps work something out; the others are views.
    pub(super) computing: usize,
    /// What there is before the first step, and after each.
    pub(super) stages: Vec<StoredTensor>,
    /// For each step the second tensor it needs.
    pub(super) operands: Vec<Option<Expression>>,
}

impl Expression {
    /// What `steps` make of a box of `base`, or why they cannot.
    pub(super) fn new(
        source: &SourceBox,
        steps: &[Step],
        base: &dyn Source,
    ) -> Result<Self, String> {
        let (name, region) = (&source.name, &source.region);
        let tensor = base.find(name);
        let tensor = tensor.ok_or_else(|| format!("there is no `{name}`"))?;
        if !lies_in(region, &tensor.shape) {
            return Err(format!("`{region}` is not in `{name}`, {:?}", tensor.shape));
        }
        let first = stage(tensor.dtype, region.extent.clone());
        let mut made = Self {
            source: Some(source.clone()),
            tensor,
            steps: Vec::new(),
            computing: 0,
            stages: vec![first],
            operands: Vec::new(),
        };
        made.append(steps, base)?;
        Ok(made)
    }

    /// What `steps`, of which the first is a constant, make of nothing.
    pub(super) fn constant(tensor: StoredTensor, steps: &[Step]) -> Result<Self, String> {
        match steps {
            [Step::Fill(_)] => Ok(Self {
                source: None,
                steps: steps.to_vec(),
                computing: 1,
                stages: vec![tensor.clone(), tensor.clone()],
                operands: vec![None],
                tensor,
            }),
            _ => Err("it has no source, and is no constant".into()),
        }
    }

    fn append(&mut self, steps: &[Step], base: &dyn Source) -> Result<(), String> {
        let (steps, computing) = ordered(steps);
        for step in &steps {
            let before = &self.stages[self.stages.len() - 1];
            let operand = match step {
                Step::Dequant { scales, .. } => {
                    Some(Expression::new(&scales.source, &scales.steps, base)?)
                }
                _ => None,
            };
            let next = after(step, before, operand.as_ref())?;
            self.stages.push(next);
            self.operands.push(operand);
        }
        (self.steps, self.computing) = (steps, computing);
        Ok(())
    }

    /// What all steps give.
    pub(super) fn result(&self) -> &StoredTensor {
        &self.stages[self.steps.len()]
    }
}

fn stage(dtype: DType, shape: Vec<usize>) -> StoredTensor {
    StoredTensor { dtype, shape }
}

pub(super) fn lies_in(region: &Region, shape: &[usize]) -> bool {
    let whole = Strided::contiguous(shape);
    whole.region(&region.offset, &region.extent).is_some()
}

/// The steps with all casts before the views at the end, and how many steps stand before those.
fn ordered(steps: &[Step]) -> (Vec<Step>, usize) {
    let moves = |step: &Step| is_view(step) || matches!(step, Step::Cast(_));
    let end = steps.iter().rposition(|step| !moves(step));
    let end = end.map_or(0, |last| last + 1);
    let (mut computing, tail) = (steps[..end].to_vec(), &steps[end..]);
    let (views, casts): (Vec<Step>, Vec<Step>) = tail.iter().cloned().partition(is_view);
    computing.extend(casts);
    let count = computing.len();
    computing.extend(views);
    (computing, count)
}

/// What a step makes of what was `before`, or why it cannot.
fn after(
    step: &Step,
    before: &StoredTensor,
    operand: Option<&Expression>,
) -> Result<StoredTensor, String> {
    let (dtype, shape) = (before.dtype, &before.shape);
    match step {
        Step::Permute(dims) => permuted(shape, dims).map(|shape| stage(dtype, shape)),
        Step::Reshape(to) if element_count(to) != element_count(shape) => {
            Err(format!("{shape:?} cannot be reshaped to {to:?}"))
        }
        Step::Reshape(to) => Ok(stage(dtype, to.clone())),
        Step::Slice(region) if !lies_in(region, shape) => {
            Err(format!("`{region}` is not in {shape:?}"))
        }
        Step::Slice(region) => Ok(stage(dtype, region.extent.clone())),
        Step::Cast(to) if dtype == DType::C64 && *to != dtype => {
            Err(format!("c64 cannot be cast to {to}"))
        }
        Step::Cast(to) => Ok(stage(*to, shape.clone())),
        Step::Fill(_) => Err("it has a source, and is a constant".into()),
        Step::Reinterpret { from, to } => reinterpreted(before, *from, *to),
        Step::Dequant { block, phase, .. } => {
            let scales = operand.map(|scales| scales.result().shape.as_slice());
            let needed = scale_shape(shape, block, phase)?;
            let enough = |scales: &[usize]| scales.iter().zip(&needed).all(|(has, is)| has >= is);
            match scales {
                Some(scales) if scales.len() == shape.len() && enough(scales) => {
                    Ok(stage(DType::F32, shape.clone()))
                }
                _ => Err(format!("the scales are {scales:?}, not {needed:?}")),
            }
        }
        Step::Quant { dtype, block } => {
            scale_shape(shape, block, &vec![0; shape.len()])?;
            Ok(stage(*dtype, shape.clone()))
        }
        Step::QuantScales { block, .. } => {
            let scales = scale_shape(shape, block, &vec![0; shape.len()])?;
            Ok(stage(DType::F32, scales))
        }
    }
}

fn permuted(shape: &[usize], dims: &[usize]) -> Result<Vec<usize>, String> {
    let mut sorted = dims.to_vec();
    sorted.sort_unstable();
    match sorted.into_iter().eq(0..shape.len()) {
        true => Ok(dims.iter().map(|dim| shape[*dim]).collect()),
        false => Err(format!("{dims:?} does not permute the dims of {shape:?}")),
    }
}

/// The tensor with the bits of its last dim as elements of another type.
fn reinterpreted(before: &StoredTensor, from: DType, to: DType) -> Result<StoredTensor, String> {
    let mut shape = before.shape.clone();
    let last = shape.last_mut().filter(|_| before.dtype == from);
    let bits = last.as_ref().and_then(|last| last.checked_mul(from.bits()));
    match (last, bits) {
        (Some(last), Some(bits)) if bits % to.bits() == 0 && bits % 8 == 0 => {
            *last = bits / to.bits();
            Ok(stage(to, shape))
        }
        _ => Err(format!(
            "{}{:?} cannot be read as {to}",
            before.dtype, before.shape
        )),
    }
}

/// How many blocks there are in each dim.
fn scale_shape(shape: &[usize], block: &[usize], phase: &[usize]) -> Result<Vec<usize>, String> {
    let ndim = shape.len();
    if block.len() != ndim || phase.len() != ndim || block.contains(&0) {
        return Err(format!("{shape:?} has no blocks of {block:?} at {phase:?}"));
    }
    let blocks = (0..ndim).map(|dim| shape[dim].saturating_add(phase[dim]).div_ceil(block[dim]));
    Ok(blocks.collect())
}
