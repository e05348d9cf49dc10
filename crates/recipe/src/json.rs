//! Programs and what they come to, as JSON: the interface for other programs.
//!
//! A request is
//!
//! ```json
//! {"statements": ["a, b -> c, axis=0"], "reverse": false, "targets": null,
//!  "sources": {"a": [{"dtype": "float32", "global_shape": [4, 4], "local_shape": [2, 4], "global_offset": [0, 0]}]}}
//! ```
//!
//! with one entry for each shard of each tensor. `aoa_statements` and `aoa_config_reverse` are understood too.

use crate::compiled::{Compiled, Operand, Piece, Step, Target};
use crate::dtype;
use crate::error::{Error, Problem};
use crate::program::Program;
use crate::tensors::{Tensor, Tensors};
use cairn_sharding::Region;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A program, and the tensors it is compiled against.
#[derive(Debug, Clone, Deserialize)]
pub struct Request {
    #[serde(alias = "aoa_statements", default)]
    statements: Vec<String>,
    #[serde(alias = "aoa_config_reverse", default)]
    reverse: bool,
    #[serde(default)]
    sources: BTreeMap<String, Vec<Shard>>,
    #[serde(default)]
    targets: Option<BTreeMap<String, Vec<Shard>>>,
}

/// A shard of a tensor.
#[derive(Debug, Clone, Deserialize)]
struct Shard {
    dtype: String,
    global_shape: Vec<usize>,
    local_shape: Vec<usize>,
    global_offset: Vec<usize>,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| {
            let reason = error.to_string();
            Problem::Json { reason }.into()
        })
    }

    /// The program.
    ///
    /// # Errors
    /// If a statement is not one.
    pub fn program(&self) -> Result<Program, Error> {
        let program = Program::from_statements(&self.statements)?;
        Ok(if self.reverse {
            program.reversed()
        } else {
            program
        })
    }

    /// The tensors there are.
    ///
    /// # Errors
    /// If their shards contradict each other.
    pub fn sources(&self) -> Result<Tensors, Error> {
        tensors(&self.sources)
    }

    /// The tensors asked for.
    ///
    /// # Errors
    /// If their shards contradict each other.
    pub fn targets(&self) -> Result<Option<Tensors>, Error> {
        self.targets.as_ref().map(tensors).transpose()
    }

    /// Compiles the program against the tensors.
    ///
    /// # Errors
    /// As [`Program::compile`], and if the request contradicts itself.
    pub fn compile(&self) -> Result<Compiled, Error> {
        let targets = self.targets()?;
        self.program()?.compile(&self.sources()?, targets.as_ref())
    }
}

fn tensors(described: &BTreeMap<String, Vec<Shard>>) -> Result<Tensors, Error> {
    let tensor = |(name, shards): (&String, &Vec<Shard>)| {
        let tensor = tensor(shards).map_err(|reason| {
            let name = name.clone();
            Problem::Described { name, reason }
        });
        Ok((name.clone(), tensor?))
    };
    described.iter().map(tensor).collect()
}

fn tensor(shards: &[Shard]) -> Result<Tensor, &'static str> {
    let first = shards.first().ok_or("it has no shards")?;
    let dtype = dtype::parse(&first.dtype).ok_or("its element type is not known")?;
    let mut starts = BTreeSet::new();
    for shard in shards {
        if shard.global_shape != first.global_shape || shard.dtype != first.dtype {
            return Err("its shards have different shapes or element types");
        }
        let ndim = shard.global_shape.len();
        let ends = shard.global_offset.iter().zip(&shard.local_shape);
        let mut ends = ends
            .map(|(offset, len)| offset.checked_add(*len))
            .zip(&shard.global_shape);
        let inside = ends.all(|(end, len)| end.is_some_and(|end| end <= *len));
        if shard.local_shape.len() != ndim || shard.global_offset.len() != ndim || !inside {
            return Err("a shard does not lie in it");
        }
        starts.insert(&shard.global_offset);
    }
    Ok(Tensor {
        dtype,
        shape: first.global_shape.clone(),
        shards: starts.len(),
    })
}

/// What a program comes to.
pub fn compiled(compiled: &Compiled) -> Value {
    let targets = compiled.targets.iter();
    let targets: Map<String, Value> = targets
        .map(|(name, found)| (name.clone(), target(found)))
        .collect();
    json!({"targets": targets, "dropped": compiled.dropped, "warnings": compiled.warnings})
}

/// Why a program cannot be compiled.
pub fn error(error: &Error) -> Value {
    json!({"error": {
        "kind": error.kind(),
        "message": error.to_string(),
        "hint": error.hint(),
        "statement": error.statement(),
        "trace": error.frames().iter().map(|frame| json!({"by": frame.by, "text": frame.text})).collect::<Vec<_>>(),
    }})
}

fn target(target: &Target) -> Value {
    let pieces = target.pieces.as_deref().unwrap_or_default();
    json!({
        "dtype": dtype::name(target.dtype),
        "shape": target.shape,
        "initialise": target.pieces.is_none(),
        "pieces": pieces.iter().map(piece).collect::<Vec<_>>(),
    })
}

fn piece(piece: &Piece) -> Value {
    let source = piece.source.as_ref();
    json!({
        "offset": piece.region.offset,
        "extent": piece.region.extent,
        "source": source.map(|source| &source.name),
        "source_offset": source.map(|source| &source.region.offset),
        "source_extent": source.map(|source| &source.region.extent),
        "steps": steps(&piece.steps),
    })
}

fn steps(steps: &[Step]) -> Vec<Value> {
    steps.iter().map(step).collect()
}

fn step(step: &Step) -> Value {
    match step {
        Step::Permute(order) => json!({"permute": order}),
        Step::Reshape(shape) => json!({"reshape": shape}),
        Step::Cast(to) => json!({"cast": dtype::name(*to)}),
        Step::Fill(value) => json!({"fill": value}),
        Step::Slice(Region { offset, extent }) => {
            json!({"slice": {"offset": offset, "extent": extent}})
        }
        Step::Reinterpret { from, to } => {
            json!({"reinterpret": {"from": dtype::name(*from), "to": dtype::name(*to)}})
        }
        Step::Dequant {
            scales,
            block,
            phase,
        } => {
            json!({"dequant": {"scales": operand(scales), "block": block, "phase": phase}})
        }
        Step::Quant { dtype, block } => {
            json!({"quant": {"dtype": dtype::name(*dtype), "block": block}})
        }
        Step::QuantScales { dtype, block } => {
            json!({"quant_scales": {"dtype": dtype::name(*dtype), "block": block}})
        }
    }
}

fn operand(operand: &Operand) -> Value {
    json!({
        "source": operand.source.name,
        "source_offset": operand.source.region.offset,
        "source_extent": operand.source.region.extent,
        "steps": steps(&operand.steps),
    })
}
