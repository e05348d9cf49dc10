//! What to merge and how, as a mergekit config says it.

mod node;
pub(crate) mod paddle;
mod problem;
mod read;
mod reference;
mod setting;
mod tokenizer;

use crate::Error;
use crate::spec::{Base, Spec};
use cairn_tensor::DType;

pub use problem::Problem;
pub use reference::ModelReference;
pub use setting::Settings;
pub use tokenizer::{TokenSource, TokenizerConfig, TokenizerSource};

/// A merge, as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The text it was read from.
    pub text: String,
    /// The method.
    pub method: &'static Spec,
    /// The model that the others are compared with.
    pub base_model: Option<ModelReference>,
    /// What is merged: all of a model, or parts of it by name.
    pub modules: Vec<Module>,
    /// The type to compute in; that of the models if not given.
    pub dtype: Option<DType>,
    /// The type to write; the one computed in if not given.
    pub out_dtype: Option<DType>,
    /// Whose tokens the result has; the base model's, or the first model's, as they are if not given.
    pub tokenizer: Option<TokenizerConfig>,
    /// The chat template of the result.
    pub chat_template: Option<String>,
    /// Parameters of everything.
    pub parameters: Settings,
    /// What only Paddle's configs can ask for.
    pub paddle: Option<paddle::Extras>,
    /// What is strange and harmless.
    pub warnings: Vec<Problem>,
}

/// A part of a model with layers of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// Its name; `None` if the model is one part.
    pub name: Option<String>,
    /// What it is made of.
    pub body: Body,
    /// Parameters of all of it.
    pub parameters: Settings,
}

/// What a module is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Whole models.
    Models(Vec<InputModel>),
    /// Layers, put on top of each other.
    Slices(Vec<OutputSlice>),
}

/// A model, with parameters of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct InputModel {
    /// The model.
    pub model: ModelReference,
    /// Its parameters.
    pub parameters: Settings,
}

/// Some layers of the result, merged from as many layers of each source.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSlice {
    /// The line it stands on.
    pub line: usize,
    /// Where the layers come from.
    pub sources: Vec<InputSlice>,
    /// The base model of these layers.
    pub base_model: Option<ModelReference>,
    /// Parameters of these layers.
    pub parameters: Settings,
}

/// Some layers of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSlice {
    /// The model.
    pub model: ModelReference,
    /// The first layer, and the one after the last.
    pub layers: (usize, usize),
    /// Parameters of these layers.
    pub parameters: Settings,
}

impl Config {
    /// Reads a mergekit YAML config, or a Paddle `MergeConfig` in JSON.
    ///
    /// # Errors
    /// Every mistake in it at once, each with its line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let node = node::Node::parse(text).map_err(|problem| Error::Config {
            problems: vec![problem],
        })?;
        match paddle::is_paddle(&node) {
            true => paddle::read(text, &node),
            false => read::read(text, &node),
        }
    }

    /// What is done with the base model, and how many models there may be beside it.
    pub(crate) fn policy(&self) -> (Base, (usize, usize)) {
        match &self.paddle {
            None => (self.method.base, self.method.models),
            Some(_) if self.method.name == "slerp" => (Base::Optional, (2, 2)),
            Some(_) => (Base::Optional, (1, usize::MAX)),
        }
    }

    /// The folder that the config itself names for the result.
    pub fn output_path(&self) -> Option<&str> {
        self.paddle.as_ref()?.output_path.as_deref()
    }

    /// Every model that is named, the base model first, one that only gives its tokens last, without repetition.
    pub fn models(&self) -> Vec<&ModelReference> {
        let mut models: Vec<&ModelReference> = self.base_model.iter().collect();
        for module in &self.modules {
            match &module.body {
                Body::Models(inputs) => models.extend(inputs.iter().map(|input| &input.model)),
                Body::Slices(slices) => {
                    for slice in slices {
                        models.extend(&slice.base_model);
                        models.extend(slice.sources.iter().map(|source| &source.model));
                    }
                }
            }
        }
        if let Some(TokenizerSource::Model(model)) = self.tokenizer.as_ref().map(|of| &of.source) {
            models.push(model);
        }
        let mut seen = std::collections::HashSet::new();
        models.retain(|model| seen.insert(*model));
        models
    }
}

#[cfg(test)]
mod tests;
