//! Reads the attributes of a statement.

use super::fused::{self, Shards};
use super::{Cut, Operation, Regroup, Scaled};
use crate::error::Problem;
use crate::expand::{Expanded, Part};
use crate::statement::{Attribute, Setting, Statement};
use crate::tensors::nearest;
use cairn_tensor::DType;

/// Every attribute there is.
const KNOWN: [&str; 27] = [
    "axis",
    "sizes",
    "permute",
    "dtype",
    "src_dtype",
    "dst_dtype",
    "cast_state",
    "reshape",
    "pad",
    "pad_to_multiple",
    "unpad",
    "fill",
    "interleave",
    "deinterleave",
    "dim",
    "stack",
    "unstack",
    "dequant",
    "quant",
    "block",
    "tie",
    "optional",
    "fused_qkv",
    "fused_qkv_old",
    "fused_ffn",
    "num_heads",
    "num_key_value_groups",
];

/// Attributes that only say more of another one, and which these are.
const OWNERS: [(&str, &[&str]); 7] = [
    ("num_heads", &["fused_qkv", "fused_qkv_old"]),
    ("num_key_value_groups", &["fused_qkv", "fused_qkv_old"]),
    ("sizes", &["axis"]),
    ("fill", &["pad", "pad_to_multiple"]),
    ("dim", &["interleave", "deinterleave", "pad_to_multiple"]),
    ("block", &["dequant", "quant"]),
    ("cast_state", &["dtype", "src_dtype"]),
];

/// An operation, and the attribute that asks for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Built {
    pub(crate) operation: Operation,
    pub(crate) attribute: usize,
    /// How many tensors it works on.
    pub(crate) count: usize,
    /// The macro it was, if it was one.
    pub(crate) by: Option<&'static str>,
}

type Failed = (Problem, Part);

/// Checks what can be checked without tensors: that attributes exist, and belong to something.
pub(crate) fn check(statement: &Statement) -> Result<(), Failed> {
    for (index, attribute) in statement.attributes.iter().enumerate() {
        let part = Part::Attribute(index);
        let name = attribute.key.clone();
        if !KNOWN.contains(&name.as_str()) {
            let near = nearest(&name, KNOWN);
            return Err((Problem::UnknownAttribute { name, near }, part));
        }
        let owners = OWNERS.iter().find(|(owned, _)| *owned == name);
        let owned = owners.is_none_or(|(_, owners)| {
            let mut others = statement.attributes.iter();
            others.any(|other| owners.contains(&other.key.as_str()))
        });
        if !owned {
            return Err((Problem::StrayAttribute { attribute: name }, part));
        }
    }
    let transposed = statement.right.iter().position(|name| name.transposed);
    match transposed {
        Some(index) => Err((Problem::TransposedTarget, Part::Right(index))),
        None => Ok(()),
    }
}

/// What a statement does to its tensors, from left to right.
pub(crate) fn operations(
    statement: &Statement,
    expanded: &Expanded,
    shards: &Shards<'_>,
) -> Result<Vec<Built>, Failed> {
    let mut builder = Builder {
        attributes: &statement.attributes,
        count: expanded.left.len(),
        wanted: expanded.right.len(),
        built: Vec::new(),
    };
    if builder.count > 1 && builder.wanted > 1 && !builder.changes_count() {
        return Err((
            builder.wrong_count("a statement", "several -> one, or one -> several"),
            Part::Whole,
        ));
    }
    for (index, attribute) in statement.attributes.iter().enumerate() {
        let failed = |problem| (problem, Part::Attribute(index));
        let by = fused::word(&attribute.key);
        let operation = match by {
            Some(_) => Some(fused::build(&builder, attribute, expanded, shards).map_err(failed)?),
            None => builder.operation(attribute).map_err(failed)?,
        };
        if let Some(operation) = operation {
            let count = builder.count;
            builder.count = operation.count_after(count);
            builder.built.push(Built {
                operation,
                attribute: index,
                count,
                by,
            });
        }
    }
    let (count, wanted) = (builder.count, builder.wanted);
    if count == wanted {
        return Ok(builder.built);
    }
    let operation = if count > wanted {
        "joining tensors"
    } else {
        "cutting a tensor"
    };
    let problem = match builder.find("axis") {
        None if builder
            .built
            .iter()
            .all(|built| !built.operation.changes_count()) =>
        {
            Problem::MissingAttribute {
                operation,
                attribute: "axis",
            }
        }
        _ => builder.wrong_count("this", "not what the names say"),
    };
    Err((problem, Part::Whole))
}

pub(super) struct Builder<'a> {
    attributes: &'a [Attribute],
    /// How many tensors there are after the operations so far.
    pub(super) count: usize,
    /// How many there are to be.
    pub(super) wanted: usize,
    built: Vec<Built>,
}

impl Builder<'_> {
    pub(super) fn find(&self, key: &str) -> Option<&Attribute> {
        self.attributes
            .iter()
            .find(|attribute| attribute.key == key)
    }

    fn changes_count(&self) -> bool {
        let keys = [
            "dequant",
            "quant",
            "tie",
            "fused_qkv",
            "fused_qkv_old",
            "fused_ffn",
        ];
        keys.iter().any(|key| self.find(key).is_some())
    }

    pub(super) fn wrong_count(&self, operation: &'static str, expected: &'static str) -> Problem {
        let (left, right) = (self.count, self.wanted);
        Problem::Count {
            operation,
            expected,
            left,
            right,
        }
    }

    fn operation(&self, attribute: &Attribute) -> Result<Option<Operation>, Problem> {
        Ok(Some(match attribute.key.as_str() {
            "axis" if fused::WORDS.iter().any(|word| self.find(word).is_some()) => return Ok(None),
            "axis" => return self.axis(attribute),
            "permute" => Operation::Permute(attribute.list()?),
            "dtype" => self.cast(None, attribute.dtype()?)?,
            "src_dtype" => {
                let to = self.need("src_dtype", "dst_dtype")?.dtype()?;
                self.cast(Some(attribute.dtype()?), to)?
            }
            "dst_dtype" => return self.need("dst_dtype", "src_dtype").map(|_| None),
            "reshape" => Operation::Reshape(attribute.list()?),
            "pad" => Operation::Pad {
                shape: attribute.list()?,
                fill: self.fill()?,
            },
            "pad_to_multiple" => {
                let (multiple, dim) = (attribute.positive()?, self.integer("dim", 0)?);
                Operation::PadToMultiple {
                    multiple,
                    dim,
                    fill: self.fill()?,
                }
            }
            "unpad" => Operation::Unpad(attribute.list()?),
            "interleave" | "deinterleave" => Operation::Rotary {
                head: attribute.positive()?,
                dim: self.integer("dim", 0)?,
                to_pairs: attribute.key == "interleave",
            },
            "stack" => Operation::Stack {
                dim: attribute.integer()?,
            },
            "unstack" => Operation::Unstack {
                dim: attribute.integer()?,
                count: self.wanted,
            },
            "dequant" => Operation::Dequant(self.scaled("dequant", attribute, 2)?),
            "quant" => Operation::Quant(self.scaled("quant", attribute, 1)?),
            "tie" if !attribute.truth()? => return Ok(None),
            "tie" if self.count != 1 => return Err(self.wrong_count("tie", "one -> several")),
            "tie" => Operation::Tie(self.wanted),
            _ => return Ok(None), // About another attribute, which asks for it.
        }))
    }

    fn need(
        &self,
        operation: &'static str,
        attribute: &'static str,
    ) -> Result<&Attribute, Problem> {
        self.find(attribute).ok_or(Problem::MissingAttribute {
            operation,
            attribute,
        })
    }

    fn axis(&self, attribute: &Attribute) -> Result<Option<Operation>, Problem> {
        let axis = attribute.integer()?;
        let sizes = self.find("sizes").map(Attribute::sizes).transpose()?;
        let regroup = match (self.count, self.wanted) {
            (1, 1) => return Ok(None),
            (1, wanted) => match sizes {
                Some(sizes) if sizes.len() != wanted => {
                    return Err(self.wrong_count("axis", "one size for each part"));
                }
                Some(sizes) => Regroup::split(axis, Cut::Sizes(sizes)),
                None => Regroup::split(axis, Cut::Equal(wanted)),
            },
            (count, _) => {
                let mut join = Regroup::join(axis, count);
                if let Some(sizes) = sizes {
                    if sizes.len() != count {
                        return Err(self.wrong_count("axis", "one size for each part"));
                    }
                    join.cuts = sizes.iter().map(|size| Cut::Sizes(vec![*size])).collect();
                }
                join
            }
        };
        Ok(Some(Operation::Regroup(regroup)))
    }

    fn cast(&self, from: Option<DType>, to: DType) -> Result<Operation, Problem> {
        let on_state = self.find("cast_state").map(Attribute::truth);
        let on_state = on_state.transpose()?.unwrap_or(false);
        Ok(Operation::Cast { from, to, on_state })
    }

    fn fill(&self) -> Result<f64, Problem> {
        self.find("fill").map_or(Ok(0.0), Attribute::number)
    }

    pub(super) fn integer(&self, key: &str, default: i64) -> Result<i64, Problem> {
        self.find(key).map_or(Ok(default), Attribute::integer)
    }

    fn scaled(
        &self,
        operation: &'static str,
        attribute: &Attribute,
        count: usize,
    ) -> Result<Scaled, Problem> {
        if self.count != count {
            let expected = [
                "a tensor -> a tensor and its scales",
                "a tensor and its scales -> a tensor",
            ];
            return Err(self.wrong_count(operation, expected[count - 1]));
        }
        match &attribute.value {
            Setting::Text(text) if text == "fp8" => {
                const BLOCK: usize = 128;
                let block = match self.find("block") {
                    Some(block) => block.sizes()?,
                    None => vec![BLOCK, BLOCK],
                };
                match block.contains(&0) {
                    true => Err(attribute.bad("blocks with elements in them")),
                    false => Ok(Scaled::Fp8 { block }),
                }
            }
            Setting::Text(text) if text == "mxfp4" => Ok(Scaled::Mxfp4),
            _ => Err(attribute.bad("`fp8` or `mxfp4`")),
        }
    }
}

impl Operation {
    fn changes_count(&self) -> bool {
        self.count_after(2) != 2 || self.count_after(1) != 1
    }

    /// How many tensors it gives for so many.
    pub(super) fn count_after(&self, count: usize) -> usize {
        match self {
            Operation::Regroup(regroup) => regroup.joins.len(),
            Operation::Stack { .. } | Operation::Dequant(_) | Operation::Untie => 1,
            Operation::Unstack { count, .. } | Operation::Tie(count) => *count,
            Operation::Quant(_) => 2,
            _ => count,
        }
    }
}
