//! Operations on tensors that are boxes of sources.

use super::{Cut, Operation, Regroup, Scaled};
use crate::error::Problem;
use crate::value::Value;
use cairn_sharding::Region;
use cairn_tensor::DType;
use std::rc::Rc;

/// Elements of MXFP4 that share a scale.
const MXFP4_BLOCK: usize = 32;

/// A tensor that an operation works on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Value(Rc<Value>),
    /// State that its parameter does not have.
    Absent,
    /// State of which only a part is there.
    Part,
}

impl Item {
    /// How many boxes it is made of.
    pub(crate) fn pieces(&self) -> usize {
        match self {
            Item::Value(value) => value.pieces.len(),
            Item::Absent | Item::Part => 0,
        }
    }
}

/// Which tensors a program runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Parameters,
    /// Optimizer state: it moves as its parameter does, and its values stay what they are.
    State,
}

/// Runs an operation.
pub(crate) fn run(operation: &Operation, items: &[Item], kind: Kind) -> Result<Vec<Item>, Problem> {
    if kind == Kind::State {
        match operation {
            Operation::Cast {
                on_state: false, ..
            } => return Ok(items.to_vec()),
            Operation::Cast { to, .. } => return each(items, |value| Ok(value.cast(*to))),
            Operation::Dequant(_) => return Ok(items[..1].to_vec()),
            Operation::Quant(_) => return Ok(vec![items[0].clone(), Item::Absent]),
            _ => {}
        }
    }
    let values: Vec<&Value> = items
        .iter()
        .filter_map(|item| match item {
            Item::Value(value) => Some(value.as_ref()),
            _ => None,
        })
        .collect();
    if values.len() < items.len() && !matches!(operation, Operation::Untie) {
        let all = items.iter().all(|item| *item == Item::Absent);
        let item = if all { Item::Absent } else { Item::Part };
        return Ok(vec![item; operation.count_after(items.len())]);
    }
    let made = match operation {
        Operation::Regroup(regroup) => self::regroup(regroup, &values)?,
        Operation::Stack { dim } => vec![stack(&values, *dim)?],
        Operation::Unstack { dim, count } => unstack(one(&values)?, *dim, *count)?,
        Operation::Dequant(scaled) => vec![dequant(&values, scaled)?],
        Operation::Quant(scaled) => quant(one(&values)?, scaled)?,
        Operation::Tie(count) => vec![one(&values)?.clone(); *count],
        Operation::Untie => return Ok(items.iter().take(1).cloned().collect()),
        unary => return each(items, |value| self::unary(unary, value)),
    };
    Ok(made
        .into_iter()
        .map(|value| Item::Value(Rc::new(value)))
        .collect())
}

fn each(
    items: &[Item],
    work: impl Fn(&Value) -> Result<Value, Problem>,
) -> Result<Vec<Item>, Problem> {
    let item = |item: &Item| match item {
        Item::Value(value) => work(value).map(|value| Item::Value(Rc::new(value))),
        other => Ok(other.clone()),
    };
    items.iter().map(item).collect()
}

fn one<'a>(values: &[&'a Value]) -> Result<&'a Value, Problem> {
    values.first().copied().ok_or(Problem::NothingToJoin)
}

fn unary(operation: &Operation, value: &Value) -> Result<Value, Problem> {
    let shape = &value.shape;
    match operation {
        Operation::Permute(order) => Ok(value.permute(&self::order(order, shape)?)),
        Operation::Cast { from, to, .. } => match from {
            Some(expected) if *expected != value.dtype => Err(Problem::NotThatDType {
                attribute: "src_dtype",
                expected: *expected,
                found: value.dtype,
            }),
            _ => Ok(value.cast(*to)),
        },
        Operation::Reshape(to) => value.reshape(&reshaped(shape, to)?),
        Operation::Pad { shape: to, fill } => value.pad(&resized(shape, to), *fill),
        Operation::PadToMultiple {
            multiple,
            dim,
            fill,
        } => {
            let dim = self::dim(*dim, shape.len())?;
            let mut to = shape.clone();
            let len = shape[dim].checked_next_multiple_of(*multiple);
            to[dim] = len.ok_or(Problem::TooLarge { what: "a tensor" })?;
            value.pad(&to, *fill)
        }
        Operation::Unpad(to) => {
            let to = resized(shape, to);
            let large = shape.iter().zip(&to).any(|(have, want)| want > have);
            match large || to.len() != shape.len() {
                true => Err(Problem::Unpad {
                    from: shape.clone(),
                    to,
                }),
                false => Ok(value.slice(&Region::whole(&to))),
            }
        }
        Operation::Rotary {
            head,
            dim,
            to_pairs,
        } => rotary(value, *head, *dim, *to_pairs),
        _ => Ok(value.clone()),
    }
}

/// The dim that a number means; negative ones count from the last.
pub(super) fn dim(axis: i64, ndim: usize) -> Result<usize, Problem> {
    let from_end = axis.checked_add_unsigned(if axis < 0 { ndim as u64 } else { 0 });
    let dim = from_end.and_then(|dim| usize::try_from(dim).ok());
    dim.filter(|dim| *dim < ndim)
        .ok_or(Problem::Axis { axis, ndim })
}

fn order(order: &[i64], shape: &[usize]) -> Result<Vec<usize>, Problem> {
    let ndim = shape.len();
    if order.is_empty() {
        return Ok((0..ndim).rev().collect());
    }
    let refuse = || Problem::Order {
        order: order.to_vec(),
        shape: shape.to_vec(),
    };
    let dims = order.iter().map(|axis| dim(*axis, ndim));
    let dims: Vec<usize> = dims.collect::<Result<_, _>>().map_err(|_| refuse())?;
    let mut sorted = dims.clone();
    sorted.sort_unstable();
    match sorted.into_iter().eq(0..ndim) {
        true => Ok(dims),
        false => Err(refuse()),
    }
}

/// A shape in which -1 is as long as is left.
fn reshaped(from: &[usize], to: &[i64]) -> Result<Vec<usize>, Problem> {
    let known = to.iter().filter_map(|len| usize::try_from(*len).ok());
    let known: Vec<usize> = known.collect();
    let refuse = || Problem::Reshape {
        from: from.to_vec(),
        to: known.clone(),
    };
    let open = to.len() - known.len();
    if open == 0 {
        return Ok(known);
    }
    let count = |shape: &[usize]| cairn_tensor::element_count(shape).ok_or_else(refuse);
    let (all, rest) = (count(from)?, count(&known)?);
    if open > 1 || rest == 0 || !all.is_multiple_of(rest) || to.iter().any(|len| *len < -1) {
        return Err(refuse());
    }
    let len = |len: &i64| usize::try_from(*len).unwrap_or(all / rest);
    Ok(to.iter().map(len).collect())
}

/// A shape in which -1 is as long as it was.
fn resized(from: &[usize], to: &[i64]) -> Vec<usize> {
    let as_it_was = |dim: usize| from.get(dim).copied().unwrap_or(0);
    let dims = to.iter().enumerate();
    dims.map(|(dim, len)| usize::try_from(*len).unwrap_or(as_it_was(dim)))
        .collect()
}

impl Cut {
    /// The size of each part along a dim.
    pub(super) fn sizes(&self, shape: &[usize], dim: usize) -> Result<Vec<usize>, Problem> {
        let len = shape[dim];
        match self {
            Cut::Equal(parts) if *parts > 0 && len.is_multiple_of(*parts) => {
                Ok(vec![len / parts; *parts])
            }
            Cut::Equal(parts) => Err(Problem::Indivisible {
                shape: shape.to_vec(),
                dim,
                parts: *parts,
            }),
            Cut::Sizes(sizes) => {
                let sum = sizes
                    .iter()
                    .try_fold(0usize, |sum, size| sum.checked_add(*size));
                match sum == Some(len) {
                    true => Ok(sizes.clone()),
                    false => Err(Problem::Sizes {
                        sizes: sizes.clone(),
                        shape: shape.to_vec(),
                        dim,
                    }),
                }
            }
        }
    }
}

fn regroup(regroup: &Regroup, values: &[&Value]) -> Result<Vec<Value>, Problem> {
    let dim = dim(regroup.axis, one(values)?.shape.len())?;
    let mut parts = Vec::with_capacity(regroup.order.len());
    for (cut, value) in regroup.cuts.iter().zip(values) {
        let ndim = value.shape.len();
        if dim >= ndim {
            return Err(Problem::Axis {
                axis: regroup.axis,
                ndim,
            });
        }
        parts.extend(value.split(dim, &cut.sizes(&value.shape, dim)?));
    }
    let mut order = regroup.order.iter();
    let mut parts: Vec<Option<Value>> = parts.into_iter().map(Some).collect();
    let mut made = Vec::with_capacity(regroup.joins.len());
    for count in &regroup.joins {
        let group = order.by_ref().take(*count);
        made.push(Value::concat(
            group.filter_map(|part| parts[*part].take()),
            dim,
        )?);
    }
    Ok(made)
}

fn stack(values: &[&Value], axis: i64) -> Result<Value, Problem> {
    let dim = dim(axis, one(values)?.shape.len() + 1)?;
    let with_dim = |value: &&Value| {
        let mut shape = value.shape.clone();
        if dim > shape.len() {
            return Err(Problem::Axis {
                axis,
                ndim: shape.len() + 1,
            });
        }
        shape.insert(dim, 1);
        value.reshape(&shape)
    };
    let parts: Vec<Value> = values.iter().map(with_dim).collect::<Result<_, _>>()?;
    Value::concat(parts, dim)
}

fn unstack(value: &Value, axis: i64, count: usize) -> Result<Vec<Value>, Problem> {
    let dim = dim(axis, value.shape.len())?;
    let sizes = Cut::Sizes(vec![1; count]).sizes(&value.shape, dim)?;
    let without_dim = |part: Value| {
        let mut shape = part.shape.clone();
        shape.remove(dim);
        part.reshape(&shape)
    };
    value
        .split(dim, &sizes)
        .into_iter()
        .map(without_dim)
        .collect()
}

fn dequant(values: &[&Value], scaled: &Scaled) -> Result<Value, Problem> {
    let [value, scales] = values else {
        return Err(Problem::NothingToJoin);
    };
    let need = |value: &Value, expected: DType| match value.dtype == expected {
        true => Ok(()),
        false => Err(Problem::NotThatDType {
            attribute: "dequant",
            expected,
            found: value.dtype,
        }),
    };
    match scaled {
        Scaled::Fp8 { block } => {
            need(value, DType::F8E4M3)?;
            value.dequant(scales, block)
        }
        Scaled::Mxfp4 => {
            need(value, DType::U8)?;
            let scales = match scales.dtype {
                DType::U8 => scales.reinterpret(DType::F8E8M0)?,
                _ => (*scales).clone(),
            };
            need(&scales, DType::F8E8M0)?;
            let value = value.reinterpret(DType::F4)?;
            let mut shape = scales.shape.clone();
            shape.push(1);
            let mut block = vec![1; value.shape.len()];
            let (Some(len), Some(last)) = (value.shape.last(), block.last_mut()) else {
                return Err(Problem::Blocks {
                    shape: value.shape.clone(),
                    block,
                });
            };
            *last = (*len).max(1);
            let mut whole = value.shape.clone();
            let len = whole.pop().unwrap_or(1);
            let values = value.dequant(&scales.reshape(&shape)?, &block)?;
            if let Some(last) = whole.last_mut() {
                *last = last
                    .checked_mul(len)
                    .ok_or(Problem::TooLarge { what: "a tensor" })?;
            }
            values.reshape(&whole)
        }
    }
}

fn quant(value: &Value, scaled: &Scaled) -> Result<Vec<Value>, Problem> {
    let block = match scaled {
        Scaled::Fp8 { block } => return Ok(value.quant(DType::F8E4M3, block)?.to_vec()),
        Scaled::Mxfp4 => vec![MXFP4_BLOCK],
    };
    let blocks = match value.shape.split_last() {
        Some((len, outer)) if len.is_multiple_of(MXFP4_BLOCK) => {
            [outer, &[len / MXFP4_BLOCK]].concat()
        }
        _ => {
            let shape = value.shape.clone();
            return Err(Problem::Blocks { shape, block });
        }
    };
    let block = [vec![1; blocks.len()], block].concat();
    let apart = value.reshape(&[&blocks[..], &[MXFP4_BLOCK]].concat())?;
    let [elements, scales] = apart.quant(DType::F4, &block)?;
    let scales = scales.cast(DType::F8E8M0).reshape(&blocks)?;
    Ok(vec![
        elements.reinterpret(DType::U8)?,
        scales.reinterpret(DType::U8)?,
    ])
}

/// Heads of `head` elements along a dim: halves to pairs, or pairs to halves.
fn rotary(value: &Value, head: usize, axis: i64, to_pairs: bool) -> Result<Value, Problem> {
    let shape = &value.shape;
    let dim = dim(axis, shape.len())?;
    if !head.is_multiple_of(2) || !shape[dim].is_multiple_of(head) {
        return Err(Problem::Heads {
            shape: shape.clone(),
            dim,
            head,
        });
    }
    let inner = if to_pairs {
        [2, head / 2]
    } else {
        [head / 2, 2]
    };
    let mut apart = shape[..dim].to_vec();
    apart.extend([shape[dim] / head, inner[0], inner[1]]);
    apart.extend(&shape[dim + 1..]);
    let mut order: Vec<usize> = (0..apart.len()).collect();
    order.swap(dim + 1, dim + 2);
    value.reshape(&apart)?.permute(&order).reshape(shape)
}
