//! Tensors as lists of numbers: what every rank should hold, element by element.

use std::collections::{BTreeMap, BTreeSet};

use cairn_reshard::{Action, Plan};
use cairn_sharding::{Region, TensorSpec};
use cairn_tensor::{ReduceOp, Strided};

/// The numbers of the elements of a box, in row-major order.
pub(crate) fn numbers(shape: &[usize], region: &Region) -> Vec<usize> {
    (0..region.ndim()).fold(vec![0], |found, dim| {
        let indices = region.offset[dim]..region.end(dim);
        let extend = |number| {
            indices
                .clone()
                .map(move |index| number * shape[dim] + index)
        };
        found.into_iter().flat_map(extend).collect()
    })
}

/// The places of the elements of a strided box, in row-major order.
pub(crate) fn places(part: &Strided) -> Vec<usize> {
    (0..part.shape.len()).fold(vec![part.offset], |found, dim| {
        let steps = (0..part.shape[dim]).map(|index| index * part.strides[dim]);
        let extend = |place| steps.clone().map(move |step| place + step);
        found.into_iter().flat_map(extend).collect()
    })
}

/// The numbers of the elements in a rank's buffer.
pub(crate) fn held(spec: &TensorSpec, rank: usize) -> Vec<usize> {
    let mut held = vec![usize::MAX; spec.local_element_count(rank)];
    for part in spec.local_boxes(rank) {
        for (place, number) in places(&part.local)
            .into_iter()
            .zip(numbers(spec.shape(), &part.region))
        {
            held[place] = number;
        }
    }
    held
}

/// The coordinate of a rank along the partial axes: which term it holds.
pub(crate) fn term(spec: &TensorSpec, rank: usize) -> Vec<usize> {
    let Some(sharding) = spec.sharding() else {
        return vec![];
    };
    let coords = sharding.mesh().coords_of(rank).unwrap();
    sharding
        .partial()
        .iter()
        .map(|&(axis, _)| coords[axis])
        .collect()
}

/// Every rank's buffer; `value` gives the element of a number in a term.
pub(crate) fn scatter(spec: &TensorSpec, value: impl Fn(&[usize], usize) -> i32) -> Vec<Vec<u8>> {
    let mut buffers = vec![vec![]; spec.max_rank() + 1];
    for rank in spec.ranks() {
        let term = term(spec, rank);
        let bytes = held(spec, rank)
            .into_iter()
            .flat_map(|number| value(&term, number).to_le_bytes());
        buffers[rank] = bytes.collect();
    }
    buffers
}

/// The value of every element: terms combined, replicas compared; `None` where nobody holds it.
pub(crate) fn gather(spec: &TensorSpec, buffers: &[Vec<u8>]) -> Vec<Option<i32>> {
    let count = spec.shape().iter().product();
    let mut terms: BTreeMap<Vec<usize>, Vec<Option<i32>>> = BTreeMap::new();
    for rank in spec.ranks() {
        let term = terms
            .entry(term(spec, rank))
            .or_insert_with(|| vec![None; count]);
        let values = buffers[rank]
            .chunks_exact(4)
            .map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
        let numbers = held(spec, rank);
        assert_eq!(numbers.len() * 4, buffers[rank].len());
        for (number, value) in numbers.into_iter().zip(values) {
            let before = term[number].replace(value);
            assert!(
                before.is_none_or(|before| before == value),
                "replicas differ"
            );
        }
    }
    let terms: Vec<_> = terms.into_values().collect();
    let combined = |number: usize| {
        let values: Option<Vec<i32>> = terms.iter().map(|term| term[number]).collect();
        values.map(|values| combine(spec, &values))
    };
    (0..count).map(combined).collect()
}

/// Combines all terms of one element.
fn combine(spec: &TensorSpec, terms: &[i32]) -> i32 {
    let Some(sharding) = spec.sharding() else {
        return terms[0];
    };
    let sizes = |wanted: ReduceOp| {
        let axes = sharding
            .partial()
            .iter()
            .filter(move |(_, op)| *op == wanted);
        axes.map(|&(axis, _)| sharding.mesh().axes()[axis].size)
            .product::<usize>()
    };
    let values = terms.iter().copied();
    match sharding.partial().first().map(|&(_, op)| op) {
        None => terms[0],
        Some(ReduceOp::Sum | ReduceOp::Avg) => {
            let sum = values.fold(0i32, i32::wrapping_add);
            sum / i32::try_from(sizes(ReduceOp::Avg)).unwrap()
        }
        Some(ReduceOp::Max) => values.max().unwrap(),
        Some(ReduceOp::Min) => values.min().unwrap(),
        Some(ReduceOp::Prod) => values.fold(1, i32::wrapping_mul),
        Some(op) => panic!("{op} is not for numbers"),
    }
}

/// The bytes that must move, by brute force over elements and ranks.
///
/// A copied element is sent to every target rank that does not have it. A reduced one gathers its terms
/// at a target rank, which has one of them if any target rank has, and is then sent to the others.
pub(crate) fn least_bytes(source: &TensorSpec, target: &TensorSpec) -> usize {
    let kept = kept_axes(source, target);
    let mut elements: BTreeMap<(Vec<usize>, usize), Element> = BTreeMap::new();
    for rank in source.ranks() {
        let (stay, reduce) = split_term(source, rank, &kept, |_| true);
        for number in held(source, rank) {
            let element = elements.entry((stay.clone(), number)).or_default();
            element.terms.insert(reduce.clone());
            element.sources.insert(rank);
        }
    }
    for rank in target.ranks() {
        let fills = |op| matches!(op, ReduceOp::Sum | ReduceOp::Prod);
        let (stay, filled) = split_term(target, rank, &kept, fills);
        for number in held(target, rank)
            .into_iter()
            .filter(|_| filled.iter().all(|&coord| coord == 0))
        {
            elements
                .entry((stay.clone(), number))
                .or_default()
                .targets
                .insert(rank);
        }
    }
    let reduces = source
        .sharding()
        .is_some_and(|sharding| sharding.partial().len() > kept.len());
    elements
        .values()
        .map(|element| element.messages(reduces))
        .sum::<usize>()
        * 4
}

/// Who has an element and who needs it.
#[derive(Default)]
struct Element {
    terms: BTreeSet<Vec<usize>>,
    sources: BTreeSet<usize>,
    targets: BTreeSet<usize>,
}

impl Element {
    fn messages(&self, reduces: bool) -> usize {
        let having = self.targets.intersection(&self.sources).count();
        match reduces {
            _ if self.targets.is_empty() => 0,
            false => self.targets.len() - having,
            true => self.terms.len() - having.min(1) + self.targets.len() - 1,
        }
    }
}

fn kept_axes(source: &TensorSpec, target: &TensorSpec) -> Vec<usize> {
    let (Some(source), Some(target)) = (source.sharding(), target.sharding()) else {
        return vec![];
    };
    let both = source
        .partial()
        .iter()
        .filter(|pair| target.partial().contains(pair));
    both.filter(|_| source.mesh() == target.mesh())
        .map(|&(axis, _)| axis)
        .collect()
}

/// The coordinates of a rank along the kept axes, and along the other partial ones with such operations.
fn split_term(
    spec: &TensorSpec,
    rank: usize,
    kept: &[usize],
    wanted: impl Fn(ReduceOp) -> bool,
) -> (Vec<usize>, Vec<usize>) {
    let Some(sharding) = spec.sharding() else {
        return (vec![], vec![]);
    };
    let coords = sharding.mesh().coords_of(rank).unwrap();
    let others = sharding
        .partial()
        .iter()
        .filter(|(axis, op)| !kept.contains(axis) && wanted(*op));
    (
        kept.iter().map(|&axis| coords[axis]).collect(),
        others.map(|&(axis, _)| coords[axis]).collect(),
    )
}

/// How often the plan writes each place of each target buffer.
pub(crate) fn writes(plan: &Plan) -> Vec<Vec<usize>> {
    let mut writes = vec![vec![]; plan.target.max_rank() + 1];
    for rank in plan.target.ranks() {
        writes[rank] = vec![0; plan.target.local_element_count(rank)];
    }
    let mut write = |ranks: &[usize], part: &Strided| {
        for &rank in ranks {
            for place in places(part) {
                writes[rank][place] += 1;
            }
        }
    };
    for action in plan.steps.iter().flat_map(|step| &step.actions) {
        match action {
            Action::Copy(transfer) | Action::Share(transfer) => {
                write(&transfer.targets, &transfer.target_box)
            }
            Action::Reduce(reduction) => write(&[reduction.owner], &reduction.target_box),
            Action::Fill(fill) => write(&[fill.target], &fill.target_box),
        }
    }
    writes
}
