//! The fused layouts: queries, keys and values, or gate and up, in one tensor.
//!
//! A fused tensor deals its components out to `n` shards, each shard with its part of every component:
//! `[Q₀ K₀ V₀ | Q₁ K₁ V₁ | …]`. `fused_ffn` and `fused_qkv_old` have as many shards as the tensor is held in,
//! `fused_qkv` as many as there are KV heads, however the tensor is held.

use super::build::Builder;
use super::{Cut, Operation, Regroup};
use crate::error::{MAX_NAMES, Problem};
use crate::expand::Expanded;
use crate::statement::Attribute;

pub(super) const WORDS: [&str; 3] = ["fused_qkv", "fused_qkv_old", "fused_ffn"];

/// The dim that is fused unless told otherwise: Paddle's linear weights are `[in, out]`.
const DEFAULT_AXIS: i64 = 1;

/// In how many shards the tensor of a name on the left (`true`) or right of a statement is held, over there.
pub(crate) type Shards<'a> = dyn Fn(&str, bool) -> Result<usize, Problem> + 'a;

/// The macro a word is.
pub(super) fn word(key: &str) -> Option<&'static str> {
    WORDS.into_iter().find(|word| *word == key)
}

/// How components lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A tensor for each.
    Apart,
    /// One tensor, dealt out to so many shards.
    Fused(usize),
}

/// The operation that a macro is.
pub(super) fn build(
    builder: &Builder<'_>,
    attribute: &Attribute,
    expanded: &Expanded,
    shards: &Shards<'_>,
) -> Result<Operation, Problem> {
    let word = word(&attribute.key).unwrap_or("fused_ffn");
    let ffn = word == "fused_ffn";
    let components = if ffn { 2 } else { 3 };
    let (left, right) = (&expanded.left, &expanded.right);
    let heads = if ffn {
        None
    } else {
        Some(heads(builder, word)?)
    };
    let by_heads = heads
        .as_ref()
        .filter(|_| word == "fused_qkv")
        .map(|heads| heads[1]);
    let fused = |name: &str, is_left: bool| -> Result<Layout, Problem> {
        match by_heads {
            Some(groups) => Ok(Layout::Fused(groups)),
            None => shards(name, is_left).map(Layout::Fused),
        }
    };
    let (from, to) = match (builder.count, builder.wanted) {
        (1, 1) if word != "fused_qkv" => {
            (fused(&left[0].name, true)?, fused(&right[0].name, false)?)
        }
        (1, count) if count == components => (fused(&left[0].name, true)?, Layout::Apart),
        (count, 1) if count == components => (Layout::Apart, fused(&right[0].name, false)?),
        _ => {
            return Err(builder.wrong_count(
                word,
                match word {
                    "fused_qkv" => "q, k, v -> one or one -> q, k, v",
                    "fused_qkv_old" => "q, k, v -> one, one -> q, k, v, or one -> one",
                    _ => "gate, up -> one, one -> gate, up, or one -> one",
                },
            ));
        }
    };
    let counts = heads.map_or_else(
        || vec![lcm(from.shards(), to.shards()); 2],
        |heads| heads.to_vec(),
    );
    if counts
        .iter()
        .fold(0usize, |sum, count| sum.saturating_add(*count))
        > MAX_NAMES
    {
        return Err(Problem::TooLarge {
            what: "the number of parts",
        });
    }
    let axis = builder.integer("axis", DEFAULT_AXIS)?;
    regroup(axis, &counts, from, to).map(Operation::Regroup)
}

/// The number of heads of queries, keys and values.
fn heads(builder: &Builder<'_>, operation: &'static str) -> Result<[usize; 3], Problem> {
    let need = |attribute: &'static str| {
        let found = builder.find(attribute);
        found
            .ok_or(Problem::MissingAttribute {
                operation,
                attribute,
            })?
            .parts()
    };
    let (queries, groups) = (need("num_heads")?, need("num_key_value_groups")?);
    match queries.is_multiple_of(groups) {
        true => Ok([queries, groups, groups]),
        false => Err(Problem::Uneven {
            parts: queries,
            shards: groups,
        }),
    }
}

fn regroup(axis: i64, counts: &[usize], from: Layout, to: Layout) -> Result<Regroup, Problem> {
    let (read, made) = (from.places(counts)?, to.places(counts)?);
    let mut place = vec![0; read.len()];
    for (at, part) in read.iter().enumerate() {
        place[*part] = at;
    }
    let sizes = |layout: Layout| match layout {
        Layout::Apart => counts.to_vec(),
        Layout::Fused(_) => vec![counts.iter().sum()],
    };
    Ok(Regroup {
        axis,
        cuts: sizes(from).into_iter().map(Cut::Equal).collect(),
        order: made.into_iter().map(|part| place[part]).collect(),
        joins: sizes(to),
    })
}

impl Layout {
    fn shards(self) -> usize {
        match self {
            Layout::Apart => 1,
            Layout::Fused(shards) => shards,
        }
    }

    /// The parts in the order they lie in, counted through the components.
    fn places(self, counts: &[usize]) -> Result<Vec<usize>, Problem> {
        let shards = self.shards();
        let uneven = counts.iter().find(|count| !count.is_multiple_of(shards));
        if let Some(&parts) = uneven {
            return Err(Problem::Uneven { parts, shards });
        }
        let mut places = Vec::new();
        for shard in 0..shards {
            let mut start = 0;
            for count in counts {
                let each = count / shards;
                places.extend(start + shard * each..start + (shard + 1) * each);
                start += count;
            }
        }
        Ok(places)
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}
