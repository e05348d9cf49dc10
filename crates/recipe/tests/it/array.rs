//! Tensors whose elements say where they are from, and the slow and plain way to work on them.

use cairn_recipe::{Compiled, Operand, Piece, SourceBox, Step, Target, Tensor, Tensors};
use cairn_sharding::Region;
use cairn_tensor::{DType, row_major_strides};
use std::collections::BTreeMap;

/// Elements in row-major order; each is a text such as `a5`, or `a5*s0` once it was multiplied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Vec<String>,
}

pub(crate) type Arrays = BTreeMap<String, Array>;

impl Array {
    pub(crate) fn new(name: &str, shape: &[usize]) -> Self {
        let count: usize = shape.iter().product();
        Self {
            shape: shape.to_vec(),
            elements: (0..count).map(|index| format!("{name}{index}")).collect(),
        }
    }

    /// The array of this shape with what `element` gives for each index.
    pub(crate) fn build(shape: &[usize], element: impl Fn(&[usize]) -> String) -> Self {
        let strides = row_major_strides(shape);
        let count: usize = shape.iter().product();
        let index = |at: usize| -> Vec<usize> {
            (0..shape.len())
                .map(|dim| at / strides[dim] % shape[dim])
                .collect()
        };
        Self {
            shape: shape.to_vec(),
            elements: (0..count).map(|at| element(&index(at))).collect(),
        }
    }

    pub(crate) fn at(&self, index: &[usize]) -> &str {
        let strides = row_major_strides(&self.shape);
        let at: usize = index
            .iter()
            .zip(&strides)
            .map(|(i, stride)| i * stride)
            .sum();
        &self.elements[at]
    }

    pub(crate) fn slice(&self, region: &Region) -> Self {
        Self::build(&region.extent, |index| {
            let moved: Vec<usize> = index
                .iter()
                .zip(&region.offset)
                .map(|(i, o)| i + o)
                .collect();
            self.at(&moved).to_owned()
        })
    }

    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        let shape: Vec<usize> = order.iter().map(|dim| self.shape[*dim]).collect();
        Self::build(&shape, |index| {
            let mut from = vec![0; index.len()];
            for (at, dim) in order.iter().enumerate() {
                from[*dim] = index[at];
            }
            self.at(&from).to_owned()
        })
    }

    pub(crate) fn reshape(&self, shape: &[usize]) -> Self {
        assert_eq!(shape.iter().product::<usize>(), self.elements.len());
        Self {
            shape: shape.to_vec(),
            elements: self.elements.clone(),
        }
    }

    pub(crate) fn concat(parts: &[Self], dim: usize) -> Self {
        let mut shape = parts[0].shape.clone();
        shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
        Self::build(&shape, |index| {
            let mut index = index.to_vec();
            for part in parts {
                if index[dim] < part.shape[dim] {
                    return part.at(&index).to_owned();
                }
                index[dim] -= part.shape[dim];
            }
            unreachable!("the parts make up the whole")
        })
    }

    pub(crate) fn split(&self, dim: usize, sizes: &[usize]) -> Vec<Self> {
        let mut start = 0;
        let part = |size: &usize| {
            start += size;
            self.slice(&Region::whole(&self.shape).with_dim(dim, start - size, *size))
        };
        sizes.iter().map(part).collect()
    }
}

/// The same tensors as a program sees them, in `F32`.
pub(crate) fn described(arrays: &Arrays) -> Tensors {
    let tensor = |(name, array): (&String, &Array)| {
        (name.clone(), Tensor::new(DType::F32, array.shape.clone()))
    };
    arrays.iter().map(tensor).collect()
}

/// Every target of a program, worked out. Each element must have exactly one piece.
pub(crate) fn evaluate(compiled: &Compiled, sources: &Arrays) -> Arrays {
    let targets = compiled.targets.iter();
    targets
        .map(|(name, found)| (name.clone(), target(found, sources)))
        .collect()
}

pub(crate) fn target(target: &Target, sources: &Arrays) -> Array {
    let mut made: BTreeMap<Vec<usize>, String> = BTreeMap::new();
    for Piece {
        region,
        source,
        steps,
    } in target.pieces.as_ref().unwrap()
    {
        let array = match source {
            Some(source) => run(source, steps, sources),
            None => match steps.as_slice() {
                [Step::Fill(value)] => Array::build(&region.extent, |_| format!("fill{value}")),
                other => panic!("a constant has one step: {other:?}"),
            },
        };
        assert_eq!(array.shape, region.extent, "steps give the box");
        Array::build(&region.extent, |index| {
            index.iter().map(|i| format!("{i},")).collect()
        })
        .elements
        .iter()
        .zip(array.elements)
        .for_each(|(index, element)| {
            let index = index.split_terminator(',').zip(&region.offset);
            let index = index
                .map(|(i, o)| i.parse::<usize>().unwrap() + o)
                .collect();
            assert_eq!(
                made.insert(index, element),
                None,
                "an element has two pieces"
            );
        });
    }
    Array::build(&target.shape, |index| made[index].clone())
}

fn run(source: &SourceBox, steps: &[Step], sources: &Arrays) -> Array {
    let whole = &sources[&source.name];
    assert!(Region::whole(&whole.shape).contains(&source.region));
    let array = whole.slice(&source.region);
    steps
        .iter()
        .fold(array, |array, step| apply(array, step, sources))
}

fn apply(array: Array, step: &Step, sources: &Arrays) -> Array {
    match step {
        Step::Permute(order) => array.permute(order),
        Step::Reshape(shape) => array.reshape(shape),
        Step::Cast(_) => array,
        Step::Slice(region) => array.slice(region),
        Step::Reinterpret { from, to } => {
            let mut shape = array.shape.clone();
            let parts = from.bits() / to.bits();
            *shape.last_mut().unwrap() *= parts;
            let parts = |element: String| (0..parts).map(move |part| format!("{element}.{part}"));
            Array {
                shape,
                elements: array.elements.into_iter().flat_map(parts).collect(),
            }
        }
        Step::Dequant {
            scales: Operand { source, steps },
            block,
            phase,
        } => {
            let scales = run(source, steps, sources);
            Array::build(&array.shape, |index| {
                let dims = index.iter().zip(phase).zip(block);
                let at: Vec<usize> = dims
                    .map(|((i, phase), block)| (i + phase) / block)
                    .collect();
                format!("{}*{}", array.at(index), scales.at(&at))
            })
        }
        Step::Quant { block, .. } => {
            let scales = blocks(&array, block);
            Array::build(&array.shape, |index| {
                let at: Vec<usize> = index
                    .iter()
                    .zip(block)
                    .map(|(i, block)| i / block)
                    .collect();
                format!("{}/{}", array.at(index), scales.at(&at))
            })
        }
        Step::QuantScales { block, .. } => blocks(&array, block),
        Step::Fill(_) => panic!("only constants are filled"),
    }
}

/// For each block, its elements.
pub(crate) fn blocks(array: &Array, block: &[usize]) -> Array {
    let dims = array.shape.iter().zip(block);
    let shape: Vec<usize> = dims.map(|(len, block)| len.div_ceil(*block)).collect();
    Array::build(&shape, |at| {
        let offset: Vec<usize> = at.iter().zip(block).map(|(at, block)| at * block).collect();
        let dims = array.shape.iter().zip(&offset).zip(block);
        let extent = dims
            .map(|((len, start), block)| (len - start).min(*block))
            .collect();
        format!(
            "max({})",
            array.slice(&Region { offset, extent }).elements.join(" ")
        )
    })
}
