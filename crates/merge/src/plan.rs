//! What becomes of which tensors: a config applied to the models it names.

mod parameters;
mod resolve;
mod sections;

use crate::Error;
use crate::config::{Config, ModelReference};
use crate::methods::Method;
use crate::models::Model;
use crate::operands::Operands;
use crate::tokenizer::Vocabulary;
use cairn_checkpoint::StoredTensor;
use cairn_tensor::DType;
use std::collections::HashMap;

/// The most mistakes that are told at once.
const MAX_PROBLEMS: usize = 20;

/// One tensor of the result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    /// As it is written.
    pub(crate) tensor: StoredTensor,
    /// The type it is computed in.
    pub(crate) arithmetic: DType,
    /// Which tensor of which model goes into it, the base model's first.
    pub(crate) inputs: Vec<(usize, String)>,
    pub(crate) has_base: bool,
    pub(crate) method: Method,
    /// Whether its rows are put in the order of the result's vocabulary.
    pub(crate) has_token_rows: bool,
}

impl TensorPlan {
    pub(crate) fn elements(&self) -> usize {
        self.tensor.shape.iter().product()
    }

    /// Opens the tensors that go into it.
    pub(crate) fn operands(
        &self,
        models: &[Model],
        vocabulary: Option<&Vocabulary>,
        threads: usize,
        seed: u64,
    ) -> Result<Operands, Error> {
        let mut inputs = Vec::new();
        for (model, name) in &self.inputs {
            inputs.push(models[*model].input(name)?);
        }
        if let (true, Some(vocabulary)) = (self.has_token_rows, vocabulary) {
            let owners: Vec<usize> = self.inputs.iter().map(|(model, _)| *model).collect();
            let base = self.has_base.then_some(0);
            vocabulary.arrange(&self.name, models, &owners, base, &mut inputs)?;
        }
        Ok(Operands {
            name: self.name.clone(),
            shape: self.tensor.shape.clone(),
            elements: self.elements(),
            inputs,
            has_base: self.has_base,
            threads,
            seed,
        })
    }
}

/// Works out every tensor of the result.
pub(crate) fn plan(
    config: &Config,
    models: &[Model],
    vocabulary: Option<&Vocabulary>,
) -> Result<Vec<TensorPlan>, Error> {
    let numbers = models.iter().enumerate();
    let mut planner = Planner {
        config,
        models,
        numbers: numbers
            .map(|(number, model)| (&model.reference, number))
            .collect(),
        vocabulary,
        problems: Vec::new(),
        tensors: Vec::new(),
    };
    for module in &config.modules {
        planner.module(module);
    }
    planner.finish()
}

struct Planner<'a> {
    config: &'a Config,
    models: &'a [Model],
    numbers: HashMap<&'a ModelReference, usize>,
    vocabulary: Option<&'a Vocabulary>,
    problems: Vec<String>,
    tensors: Vec<TensorPlan>,
}

impl Planner<'_> {
    fn problem(&mut self, text: String) {
        if !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    fn finish(mut self) -> Result<Vec<TensorPlan>, Error> {
        let mut seen = std::collections::HashSet::new();
        let twice = self
            .tensors
            .iter()
            .find(|tensor| !seen.insert(&tensor.name));
        if let Some(name) = twice.map(|tensor| tensor.name.clone()) {
            self.problem(format!("two modules make the tensor `{name}`"));
        }
        if self.tensors.is_empty() && self.problems.is_empty() {
            self.problem("they have no tensors".into());
        }
        let more = self.problems.len().saturating_sub(MAX_PROBLEMS);
        if more > 0 {
            self.problems.truncate(MAX_PROBLEMS);
            self.problems.push(format!("and {more} more"));
        }
        match self.problems.is_empty() {
            true => Ok(self.tensors),
            false => Err(Error::Models {
                problems: self.problems,
            }),
        }
    }
}
