//! A tree of values → a config, with every mistake in it.

use super::node::{Node, Value};
use super::problem::{Problem, did_you_mean};
use super::tokenizer::TokenizerConfig;
use super::{Body, Config, InputModel, InputSlice, ModelReference, Module, OutputSlice, Settings};
use crate::Error;
use crate::spec::{self, METHODS, Spec};
use crate::templates;
use cairn_tensor::DType;

const TOP: &[&str] = &[
    "models",
    "slices",
    "modules",
    "merge_method",
    "base_model",
    "dtype",
    "out_dtype",
    "tokenizer_source",
    "tokenizer",
    "chat_template",
    "parameters",
];

/// Reads a mergekit config.
pub(super) fn read(text: &str, node: &Node) -> Result<Config, Error> {
    let mut reader = Reader::default();
    let config = reader.config(text, node);
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => {
            reader.problems.sort_by_key(|problem| problem.line);
            let problems = reader.problems;
            Err(Error::Config { problems })
        }
    }
}

/// Collects mistakes while it reads.
#[derive(Default)]
struct Reader {
    spec: Option<&'static Spec>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Reader {
    fn problem(&mut self, line: usize, message: impl Into<String>) {
        self.problems.push(Problem::new(line, message));
    }

    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Tells every key of a map that is not among `known`; whether it is a map.
    fn keys(&mut self, node: &Node, what: &str, known: &[&str]) -> bool {
        let Some(entries) = node.entries() else {
            self.problem(node.line, format!("{what} is a map, not {}", node.kind()));
            return false;
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let near = did_you_mean(&entry.key, known.iter().copied());
                let reason = format!("{what} has no `{}`{near}", entry.key);
                self.problem(entry.line, reason);
            }
        }
        true
    }

    fn config(&mut self, text: &str, node: &Node) -> Option<Config> {
        if !self.keys(node, "a merge", TOP) {
            return None;
        }
        self.spec = self.method(node);
        let base_model = self.model(given(node, "base_model"));
        let parameters = self.settings(node);
        let modules = self.modules(node);
        let dtype = self.dtype(node, "dtype");
        let out_dtype = self.dtype(node, "out_dtype");
        let tokenizer = TokenizerConfig::read(node, &mut self.problems);
        let chat_template = self.chat_template(node);
        Some(Config {
            text: text.to_string(),
            method: self.spec?,
            base_model,
            modules,
            dtype,
            out_dtype,
            tokenizer,
            chat_template,
            parameters,
            paddle: None,
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    /// `auto`, a name, or a template, which has braces in it.
    fn chat_template(&mut self, node: &Node) -> Option<String> {
        let given = given(node, "chat_template")?;
        let text = self.text(given)?;
        if text == "auto" || templates::find(&text).is_some() || text.contains('{') {
            return Some(text);
        }
        let names = || ["auto"].into_iter().chain(templates::names());
        let near = did_you_mean(&text, names());
        let names = names().collect::<Vec<_>>().join("`, `");
        let reason =
            format!("`{text}` is no chat template; give one, or its name: `{names}`{near}");
        self.problem(given.line, reason);
        None
    }

    fn method(&mut self, node: &Node) -> Option<&'static Spec> {
        let Some(method) = given(node, "merge_method") else {
            self.problem(node.line, "a merge needs a `merge_method`");
            return None;
        };
        let name = self.text(method)?;
        let spec = spec::find(&name);
        if spec.is_none() {
            let names = || METHODS.iter().map(|spec| spec.name);
            let near = did_you_mean(&name, names());
            let near = match near.is_empty() {
                true => format!("; there are {}", names().collect::<Vec<_>>().join(", ")),
                false => near,
            };
            self.problem(
                method.line,
                format!("there is no merge method `{name}`{near}"),
            );
        }
        spec
    }

    fn modules(&mut self, node: &Node) -> Vec<Module> {
        let present = |key: &&str| given(node, key).is_some();
        let forms: Vec<&str> = ["models", "slices", "modules"]
            .into_iter()
            .filter(present)
            .collect();
        match forms.as_slice() {
            ["modules"] => self.named_modules(node.get("modules").unwrap_or(node)),
            [_] => self
                .body(node)
                .map(|body| {
                    vec![Module {
                        name: None,
                        body,
                        parameters: Settings::default(),
                    }]
                })
                .unwrap_or_default(),
            _ => {
                let found = match forms.is_empty() {
                    true => "none".to_string(),
                    false => forms.join(" and "),
                };
                let reason = "a merge has exactly one of `models`, `slices` and `modules`";
                self.problem(node.line, format!("{reason}; this has {found}"));
                Vec::new()
            }
        }
    }

    fn named_modules(&mut self, node: &Node) -> Vec<Module> {
        let Some(entries) = node.entries() else {
            let reason = format!("`modules` is a map by name, not {}", node.kind());
            self.problem(node.line, reason);
            return Vec::new();
        };
        let mut modules = Vec::new();
        for entry in entries {
            let what = format!("module `{}`", entry.key);
            if !self.keys(&entry.node, &what, &["slices", "models", "parameters"]) {
                continue;
            }
            let both = ["models", "slices"].map(|key| given(&entry.node, key).is_some());
            if both[0] == both[1] {
                self.problem(
                    entry.line,
                    format!("{what} has either `models` or `slices`"),
                );
                continue;
            }
            let parameters = self.settings(&entry.node);
            if let Some(body) = self.body(&entry.node) {
                modules.push(Module {
                    name: Some(entry.key.clone()),
                    body,
                    parameters,
                });
            }
        }
        modules
    }

    fn body(&mut self, node: &Node) -> Option<Body> {
        if let Some(models) = given(node, "models") {
            let models = self.list(models, "`models`", Self::input_model);
            return Some(Body::Models(models));
        }
        let slices = given(node, "slices")?;
        Some(Body::Slices(self.list(
            slices,
            "`slices`",
            Self::output_slice,
        )))
    }

    fn list<T>(
        &mut self,
        node: &Node,
        what: &str,
        read: impl Fn(&mut Self, &Node) -> Option<T>,
    ) -> Vec<T> {
        match &node.value {
            Value::List(items) if !items.is_empty() => {
                items.iter().filter_map(|item| read(self, item)).collect()
            }
            Value::List(_) => {
                self.problem(node.line, format!("{what} is empty"));
                Vec::new()
            }
            _ => {
                self.problem(node.line, format!("{what} is a list, not {}", node.kind()));
                Vec::new()
            }
        }
    }

    fn input_model(&mut self, node: &Node) -> Option<InputModel> {
        if !self.keys(node, "a model", &["model", "parameters"]) {
            return None;
        }
        let model = self.required_model(node)?;
        let parameters = self.settings(node);
        Some(InputModel { model, parameters })
    }

    fn output_slice(&mut self, node: &Node) -> Option<OutputSlice> {
        let known = ["sources", "base_model", "residual_weight", "parameters"];
        if !self.keys(node, "a slice", &known) {
            return None;
        }
        let parameters = self.settings(node);
        let base_model = self.model(given(node, "base_model"));
        let Some(sources) = given(node, "sources") else {
            self.problem(node.line, "a slice needs `sources`");
            return None;
        };
        let sources = self.list(sources, "`sources`", Self::input_slice);
        let lengths = |source: &InputSlice| source.layers.1 - source.layers.0;
        if let Some(first) = sources.first() {
            let len = lengths(first);
            if let Some(other) = sources.iter().find(|source| lengths(source) != len) {
                let reason = format!(
                    "`{}` gives {len} layers and `{}` gives {}: they have to be as many",
                    first.model,
                    other.model,
                    lengths(other)
                );
                self.problem(node.line, reason);
            }
        }
        Some(OutputSlice {
            line: node.line,
            sources,
            base_model,
            parameters,
        })
    }

    fn input_slice(&mut self, node: &Node) -> Option<InputSlice> {
        if !self.keys(node, "a source", &["model", "layer_range", "parameters"]) {
            return None;
        }
        let model = self.required_model(node);
        let parameters = self.settings(node);
        let layers = self.layers(node);
        Some(InputSlice {
            model: model?,
            layers: layers?,
            parameters,
        })
    }

    fn layers(&mut self, node: &Node) -> Option<(usize, usize)> {
        let Some(range) = given(node, "layer_range") else {
            self.problem(node.line, "a source needs a `layer_range`");
            return None;
        };
        let whole = |node: &Node| match node.value {
            Value::Number(number) if (0.0..1e9).contains(&number) && number.fract() == 0.0 =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the range was just checked"
                )]
                Some(number as usize)
            }
            _ => None,
        };
        if let Value::List(ends) = &range.value
            && let [Some(first), Some(end)] = ends.iter().map(whole).collect::<Vec<_>>().as_slice()
            && first < end
        {
            return Some((*first, *end));
        }
        let reason =
            "a `layer_range` is `[first, end]`: the first layer, and the one after the last";
        self.problem(range.line, reason);
        None
    }

    fn required_model(&mut self, node: &Node) -> Option<ModelReference> {
        let model = given(node, "model");
        if model.is_none() {
            self.problem(node.line, "this needs a `model`");
        }
        self.model(model)
    }

    fn model(&mut self, node: Option<&Node>) -> Option<ModelReference> {
        let read = ModelReference::read(node?);
        self.keep(read)
    }

    fn settings(&mut self, node: &Node) -> Settings {
        let Some(parameters) = given(node, "parameters") else {
            return Settings::default();
        };
        Settings::read(
            parameters,
            self.spec,
            &mut self.problems,
            &mut self.warnings,
        )
    }

    fn text(&mut self, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.problem(node.line, format!("this is text, not {}", node.kind()));
                None
            }
        }
    }

    fn dtype(&mut self, node: &Node, key: &str) -> Option<DType> {
        let node = given(node, key)?;
        let name = self.text(node)?;
        match name.strip_prefix("torch.").unwrap_or(&name) {
            "bfloat16" => Some(DType::Bf16),
            "float16" => Some(DType::F16),
            "float32" => Some(DType::F32),
            "float64" => Some(DType::F64),
            _ => {
                let reason = "is not among bfloat16, float16, float32 and float64";
                self.problem(node.line, format!("`{key}: {name}` {reason}"));
                None
            }
        }
    }
}

/// The value under `key`, unless it is null.
pub(super) fn given<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.get(key).filter(|node| node.value != Value::Null)
}
