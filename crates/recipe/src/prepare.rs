//! Makes statements ready to run: names written out, attributes read, and turned round for a run from right to left.

use crate::engine::{Prepared, Stage};
use crate::error::{Error, Problem};
use crate::expand::{Expanded, Names, Part, expand};
use crate::operation::{Built, Item, Kind, Operation, inverse, operations, run};
use crate::state::Grouped;
use crate::statement::Statement;
use crate::tensors::Tensor;
use crate::value::Value;
use cairn_tensor::DType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// What statements are made ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The tensors a stage begins with.
    pub(crate) inputs: &'a BTreeMap<String, Item>,
    pub(crate) sources: &'a Grouped,
    pub(crate) targets: Option<&'a Grouped>,
    pub(crate) reverse: bool,
}

/// Makes the statements of a stage ready.
pub(crate) fn prepare<'a>(
    statements: &'a [Statement],
    around: &Surroundings<'_>,
) -> Result<Stage<'a>, Error> {
    let inputs: BTreeSet<&str> = around.inputs.keys().map(String::as_str).collect();
    let targets = around
        .targets
        .map(|targets| targets.parameters.keys().map(String::as_str));
    let targets: Option<BTreeSet<&str>> = targets.map(Iterator::collect);
    let names = Names {
        inputs: &inputs,
        targets: targets.as_ref(),
        reverse: around.reverse,
    };
    let expanded = expand(statements, &names)?;
    let chains = Chains::new(statements, &expanded);
    let mut built = Vec::with_capacity(expanded.len());
    for one in &expanded {
        let statement = &statements[one.statement];
        let shards = |name: &str, is_left: bool| chains.shards(name, is_left, around);
        let found = match is_blank(one) {
            true => Ok(Vec::new()),
            false => operations(statement, one, &shards),
        };
        built.push(
            found.map_err(|(problem, part)| Error::new(problem, one.frames(statement, part)))?,
        );
    }
    let prepared = expanded.into_iter().zip(built);
    let prepared = prepared.map(|(expanded, operations)| Prepared {
        expanded,
        operations,
    });
    let mut stage = Stage {
        statements,
        prepared: prepared.collect(),
        reverse: around.reverse,
    };
    if around.reverse {
        turn_round(&mut stage, around.targets)?;
    }
    Ok(stage)
}

fn is_blank(expanded: &Expanded) -> bool {
    let blank = |side: &[crate::expand::Variable]| side.len() == 1 && side[0].blank;
    blank(&expanded.left) || blank(&expanded.right)
}

/// Puts the operation that undoes it in the place of each.
fn turn_round(stage: &mut Stage<'_>, targets: Option<&Grouped>) -> Result<(), Error> {
    let shapes = targets.map(|targets| shapes_before(stage, targets));
    for index in 0..stage.prepared.len() {
        let shapes = shapes.as_ref().and_then(|shapes| shapes[index].as_ref());
        let undo = |(at, built): (usize, &Built)| {
            let shapes = shapes.map(|shapes| shapes[at].as_slice());
            let operation = inverse(&built.operation, shapes, built.count);
            let failed = |problem| (problem, Part::Attribute(built.attribute));
            let operation = operation.map_err(failed)?;
            Ok(Built {
                operation,
                ..built.clone()
            })
        };
        let built = &stage.prepared[index].operations;
        let turned: Result<Vec<Built>, _> = built.iter().enumerate().rev().map(undo).collect();
        let turned = turned.map_err(|(problem, part)| stage.error(index, problem, part, None))?;
        stage.prepared[index].operations = turned;
    }
    Ok(())
}

/// The shapes of the tensors before each operation of each statement, found by running the program forwards on the targets;
/// `None` for statements that these do not feed.
fn shapes_before(stage: &Stage<'_>, targets: &Grouped) -> Vec<Option<Vec<Vec<Vec<usize>>>>> {
    let alike = |(name, tensor): (&String, &Tensor)| {
        // Element types are not what this is about.
        let value = Value::source(name, DType::F32, &tensor.shape);
        (name.clone(), Item::Value(Rc::new(value)))
    };
    let inputs: BTreeMap<String, Item> = targets.parameters.iter().map(alike).collect();
    let mut made: HashMap<&str, Item> = HashMap::new();
    let mut found = vec![None; stage.prepared.len()];
    for (index, prepared) in stage.prepared.iter().enumerate().rev() {
        let Expanded { left, right, .. } = &prepared.expanded;
        let items = left.iter().map(|variable| {
            let item = made
                .get(variable.name.as_str())
                .or_else(|| inputs.get(&variable.name));
            let mut items = vec![item?.clone()];
            if variable.transposed {
                items = run(&Operation::Permute(Vec::new()), &items, Kind::State).ok()?;
            }
            items.pop()
        });
        let Some(mut items) = items.collect::<Option<Vec<Item>>>() else {
            continue;
        };
        let mut shapes = Vec::new();
        let done = prepared.operations.iter().all(|built| {
            shapes.push(items.iter().map(shape_of).collect());
            // As for state, whose values stay what they are.
            run(&built.operation, &items, Kind::State).is_ok_and(|made| {
                items = made;
                true
            })
        });
        if done && items.len() == right.len() {
            found[index] = Some(shapes);
            made.extend(
                right
                    .iter()
                    .map(|variable| variable.name.as_str())
                    .zip(items),
            );
        }
    }
    found
}

fn shape_of(item: &Item) -> Vec<usize> {
    match item {
        Item::Value(value) => value.shape.clone(),
        _ => Vec::new(),
    }
}

/// Who becomes whom, to find the source or target that an intermediate name stands for.
struct Chains<'a> {
    forwards: HashMap<&'a str, Vec<&'a str>>,
    backwards: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Chains<'a> {
    fn new(statements: &[Statement], expanded: &'a [Expanded]) -> Self {
        let mut chains = Self {
            forwards: HashMap::new(),
            backwards: HashMap::new(),
        };
        let mut attributes = statements
            .iter()
            .flat_map(|statement| &statement.attributes);
        if !attributes.any(|found| matches!(found.key.as_str(), "fused_ffn" | "fused_qkv_old")) {
            return chains; // Nobody will ask.
        }
        let mut in_order: Vec<&Expanded> = expanded.iter().collect();
        in_order.sort_by_key(|one| one.statement);
        for one in in_order {
            let names = |side: &'a [crate::expand::Variable]| -> Vec<&'a str> {
                side.iter().map(|variable| variable.name.as_str()).collect()
            };
            let (left, right) = (names(&one.left), names(&one.right));
            for name in &left {
                chains.forwards.insert(name, right.clone());
            }
            for name in right {
                chains.backwards.insert(name, left.clone());
            }
        }
        chains
    }

    /// In how many shards a name's tensor is held where it comes from or goes to.
    fn shards(
        &self,
        name: &str,
        is_left: bool,
        around: &Surroundings<'_>,
    ) -> Result<usize, Problem> {
        let outside = match is_left != around.reverse {
            true => around.sources,
            false => match around.targets {
                Some(targets) => targets,
                None => return Ok(1),
            },
        };
        let chain = if is_left {
            &self.backwards
        } else {
            &self.forwards
        };
        let mut seen = vec![name];
        let mut at = name;
        while !outside.parameters.contains_key(at) {
            let Some(next) = chain.get(at) else { break };
            let many = |found: &[&str]| Problem::ManyOrigins {
                name: name.to_owned(),
                found: found.iter().map(|name| format!("`{name}`")).collect(),
            };
            at = match next.as_slice() {
                [one] if !seen.contains(one) => one,
                found => return Err(many(found)),
            };
            seen.push(at);
        }
        match outside.shards(at).as_slice() {
            [] => Ok(1),
            [shards] => Ok((*shards).max(1)),
            _ => Err(Problem::Described {
                name: at.to_owned(),
                reason: "it is held in another number of shards than its optimizer state",
            }),
        }
    }
}
