//! Paddle's `MergeConfig`, in JSON.

use super::node::{Node, Value};
use super::problem::{Problem, did_you_mean};
use super::{Body, Config, InputModel, ModelReference, Module, Settings};
use crate::Error;
use crate::methods::Election;
use crate::spec;

/// What Paddle's configs say and mergekit's cannot.
#[derive(Debug, Clone, PartialEq)]
pub struct Extras {
    pub(crate) normalize: bool,
    pub(crate) rescale: bool,
    pub(crate) election: Election,
    pub(crate) reserve_p: f64,
    pub(crate) epsilon: f64,
    pub(crate) slerp_alpha: f64,
    pub(crate) slerp_normalize_eps: f64,
    pub(crate) slerp_dot_threshold: f64,
    /// Whether the optimizer's copies of the weights are merged, and not the weights.
    pub(crate) masters: bool,
    /// Tensors that the result goes without.
    pub(crate) remove_keys: Vec<String>,
    /// Side files to take from the first model; all if `None`.
    pub(crate) copy_files: Option<Vec<String>>,
    /// The folder to write, if nobody says otherwise.
    pub(crate) output_path: Option<String>,
}

const METHODS: [&str; 7] = [
    "linear",
    "ties",
    "slerp",
    "della_linear",
    "della",
    "dare_linear",
    "dare_ties",
];

/// Everything a `MergeConfig` may say. How Paddle splits its work does not change the result and is passed over.
const KEYS: &[&str] = &[
    "merge_method",
    "model_path_list",
    "model_path_str",
    "base_model_path",
    "output_path",
    "lora_model_path",
    "copy_file_list",
    "weight_list",
    "normalize",
    "slerp_alpha",
    "slerp_normalize_eps",
    "slerp_dot_threshold",
    "ties_elect_type",
    "rescale",
    "reserve_p",
    "epsilon",
    "merge_prefix",
    "remove_keys",
    "tensor_type",
    "n_process",
    "merge_type",
    "sparsify_type",
    "split_pieces",
    "max_tensor_mem",
    "convert_from_hf",
    "save_to_hf",
    "merge_with_qdq_base_model",
];

/// Whether a config is Paddle's: it lists paths, which mergekit's never do.
pub(super) fn is_paddle(node: &Node) -> bool {
    let own = [
        "model_path_list",
        "model_path_str",
        "base_model_path",
        "lora_model_path",
    ];
    own.iter().any(|key| node.get(key).is_some())
}

/// Reads a `MergeConfig`.
pub(super) fn read(text: &str, node: &Node) -> Result<Config, Error> {
    let mut reader = Reader {
        node,
        problems: Vec::new(),
    };
    let config = reader.config(text);
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => {
            reader.problems.sort_by_key(|problem| problem.line);
            let problems = reader.problems;
            Err(Error::Config { problems })
        }
    }
}

struct Reader<'a> {
    node: &'a Node,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn problem(&mut self, line: usize, reason: impl Into<String>) {
        self.problems.push(Problem::new(line, reason));
    }

    fn config(&mut self, text: &str) -> Option<Config> {
        for entry in self.node.entries().unwrap_or_default() {
            if !KEYS.contains(&entry.key.as_str()) {
                let near = did_you_mean(&entry.key, KEYS.iter().copied());
                self.problem(entry.line, format!("a merge has no `{}`{near}", entry.key));
            }
        }
        let name = self.text("merge_method").unwrap_or_else(|| "linear".into());
        if !METHODS.contains(&name.as_str()) {
            let near = did_you_mean(&name, METHODS);
            let reason = format!("there is no merge method `{name}`{near}");
            self.problem(self.line("merge_method"), reason);
        }
        let paths = self.paths();
        let lora = self.text("lora_model_path");
        let weights = self.weights(paths.len());
        let base_model = self
            .text("base_model_path")
            .map(|path| ModelReference { path, lora: None });
        let extras = self.extras(&name);
        let inputs = match (&lora, paths.is_empty()) {
            // An adapter alone is added to the base model.
            (Some(_), true) => base_model.iter().map(|base| base.path.clone()).collect(),
            _ => paths,
        };
        if inputs.is_empty() {
            let reason =
                "a merge needs a `model_path_list`, or a `lora_model_path` and a `base_model_path`";
            self.problem(self.node.line, reason);
        }
        let is_adapter = lora.is_some() && inputs.len() == 1;
        let models = inputs
            .into_iter()
            .enumerate()
            .map(|(index, path)| InputModel {
                model: ModelReference {
                    path,
                    lora: lora.clone(),
                },
                parameters: Settings::constant(&[(
                    "weight",
                    weights.get(index).copied().unwrap_or(1.0),
                )]),
            });
        Some(Config {
            text: text.to_string(),
            method: spec::find(if is_adapter { "passthrough" } else { &name })?,
            modules: vec![Module {
                name: None,
                body: Body::Models(models.collect()),
                parameters: Settings::default(),
            }],
            base_model: base_model.filter(|_| !is_adapter),
            dtype: None,
            out_dtype: None,
            tokenizer: None,
            chat_template: None,
            parameters: Settings::default(),
            paddle: Some(extras),
            warnings: Vec::new(),
        })
    }

    fn extras(&mut self, method: &str) -> Extras {
        let reserve_p = self.number("reserve_p", 0.7);
        let epsilon = self.number("epsilon", 0.14);
        if !(0.0..=1.0).contains(&reserve_p) {
            self.problem(self.line("reserve_p"), "`reserve_p` lies between 0 and 1");
        }
        let ranks = method.starts_with("della");
        if ranks && !(epsilon / 2.0 < reserve_p && reserve_p < 1.0 - epsilon) {
            let reason = "`epsilon` / 2 < `reserve_p` < 1 - `epsilon` has to hold";
            self.problem(self.line("epsilon"), reason);
        }
        let election = match self.text("ties_elect_type").as_deref() {
            None | Some("sum") => Election::Sum,
            Some("count") => Election::Count,
            Some(other) => {
                let reason = format!("`ties_elect_type` is `sum` or `count`, not `{other}`");
                self.problem(self.line("ties_elect_type"), reason);
                Election::Sum
            }
        };
        let masters = match self.text("merge_prefix").as_deref() {
            None | Some("model") => false,
            Some("master_weights") => true,
            Some(other) => {
                let reason =
                    format!("`merge_prefix` is `model` or `master_weights`, not `{other}`");
                self.problem(self.line("merge_prefix"), reason);
                false
            }
        };
        Extras {
            normalize: self.truth("normalize", true),
            rescale: self.truth("rescale", true),
            election,
            reserve_p,
            epsilon,
            slerp_alpha: self.number("slerp_alpha", 0.5),
            slerp_normalize_eps: self.number("slerp_normalize_eps", 1e-8),
            slerp_dot_threshold: self.number("slerp_dot_threshold", 0.9995),
            masters,
            remove_keys: self.texts("remove_keys").unwrap_or_default(),
            copy_files: self.texts("copy_file_list"),
            output_path: self.text("output_path"),
        }
    }

    fn paths(&mut self) -> Vec<String> {
        if let Some(list) = self.texts("model_path_list") {
            return list;
        }
        let text = self.text("model_path_str").unwrap_or_default();
        let paths = text.split(',').map(str::trim);
        paths
            .filter(|path| !path.is_empty())
            .map(str::to_string)
            .collect()
    }

    fn weights(&mut self, models: usize) -> Vec<f64> {
        let Some(node) = self.given("weight_list") else {
            return vec![1.0; models];
        };
        let number = |node: &Node| match node.value {
            Value::Number(number) => Some(number),
            _ => None,
        };
        let weights: Option<Vec<f64>> = match &node.value {
            Value::List(items) => items.iter().map(number).collect(),
            _ => None,
        };
        let line = node.line;
        match weights {
            Some(weights) if weights.len() == models => weights,
            Some(weights) => {
                let reason = format!(
                    "`weight_list` has {} weights for {models} models",
                    weights.len()
                );
                self.problem(line, reason);
                weights
            }
            None => {
                self.problem(line, "`weight_list` is a list of numbers");
                Vec::new()
            }
        }
    }

    fn given(&self, key: &str) -> Option<&Node> {
        super::read::given(self.node, key)
    }

    fn line(&self, key: &str) -> usize {
        self.given(key).unwrap_or(self.node).line
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let node = self.given(key)?;
        if let Value::Text(text) = &node.value {
            return Some(text.clone());
        }
        let (line, kind) = (node.line, node.kind());
        self.problem(line, format!("`{key}` is text, not {kind}"));
        None
    }

    fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let node = self.given(key)?;
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let texts: Option<Vec<String>> = match &node.value {
            Value::List(items) => items.iter().map(text).collect(),
            _ => None,
        };
        if texts.is_none() {
            self.problem(self.line(key), format!("`{key}` is a list of texts"));
        }
        texts
    }

    fn number(&mut self, key: &str, default: f64) -> f64 {
        match self.given(key).map(|node| &node.value) {
            None => default,
            Some(Value::Number(number)) if number.is_finite() => *number,
            Some(_) => {
                self.problem(self.line(key), format!("`{key}` is a number"));
                default
            }
        }
    }

    fn truth(&mut self, key: &str, default: bool) -> bool {
        match self.given(key).map(|node| &node.value) {
            None => default,
            Some(Value::Bool(truth)) => *truth,
            Some(_) => {
                self.problem(self.line(key), format!("`{key}` is true or false"));
                default
            }
        }
    }
}
