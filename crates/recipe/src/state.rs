//! Optimizer state: tensors named after a parameter, which go where it goes.

use crate::tensors::{Tensor, Tensors};
use std::collections::BTreeMap;

/// How the names of one kind of state are made of the names of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Style {
    prefix: &'static str,
    /// What a parameter's name loses at its front.
    strip: &'static str,
    suffix: &'static str,
    /// Whether it is a number for the whole parameter, and not one for each element.
    pub(crate) scalar: bool,
}

impl Style {
    /// The name of the state of a parameter.
    pub(crate) fn of(&self, parameter: &str) -> String {
        let name = parameter.strip_prefix(self.strip).unwrap_or(parameter);
        format!("{}{name}{}", self.prefix, self.suffix)
    }
}

/// Suffixes that always mean state, whether there is such a parameter or not.
const PADDLE: [(&str, bool); 5] = [
    (".w_0", false),
    (".moment1_0", false),
    (".moment2_0", false),
    (".beta1_pow_acc_0", true),
    (".beta2_pow_acc_0", true),
];

/// Suffixes of PyTorch's optimizers, which mean state of a parameter that exists.
const TORCH: [(&str, bool); 7] = [
    (".exp_avg", false),
    (".exp_avg_sq", false),
    (".max_exp_avg_sq", false),
    (".momentum_buffer", false),
    (".square_avg", false),
    (".master_param", false),
    (".step", true),
];

const TORCH_PREFIXES: [&str; 5] = [
    "",
    "optim.state.",
    "optimizer.state.",
    "optim.",
    "optimizer.",
];

const MEGATRON_PREFIXES: [&str; 3] = [
    "optimizer.state.exp_avg.",
    "optimizer.state.exp_avg_sq.",
    "optimizer.state.fp32_param.",
];

/// The parameter that a name is the state of, and what kind of state it is.
pub(crate) fn split(name: &str, is_parameter: impl Fn(&str) -> bool) -> Option<(String, Style)> {
    let style = |prefix, strip, suffix, scalar| Style {
        prefix,
        strip,
        suffix,
        scalar,
    };
    for (suffix, scalar) in PADDLE {
        if let Some(parameter) = name.strip_suffix(suffix) {
            return Some((parameter.to_owned(), style("", "", suffix, scalar)));
        }
    }
    let torch = TORCH_PREFIXES
        .into_iter()
        .flat_map(|prefix| TORCH.map(|(suffix, scalar)| (prefix, suffix, scalar)));
    let megatron = MEGATRON_PREFIXES.map(|prefix| (prefix, "", false));
    for (prefix, suffix, scalar) in torch.chain(megatron) {
        let inner = name.strip_suffix(suffix);
        let Some(inner) = inner.and_then(|name| name.strip_prefix(prefix)) else {
            continue;
        };
        if is_parameter(inner) {
            return Some((inner.to_owned(), style(prefix, "", suffix, scalar)));
        }
        let longer = format!("model.{inner}");
        if !prefix.is_empty() && is_parameter(&longer) {
            return Some((longer, style(prefix, "model.", suffix, scalar)));
        }
    }
    None
}

/// Tensors, the parameters apart from their state.
#[derive(Debug, Default)]
pub(crate) struct Grouped {
    /// By name. One that is only known by its state is among them, as that state describes it.
    pub(crate) parameters: Tensors,
    /// Parameters that are only known by their state.
    pub(crate) implied: Vec<String>,
    /// The state of each kind, by the names of the parameters.
    pub(crate) states: BTreeMap<Style, Tensors>,
}

impl Grouped {
    pub(crate) fn new(tensors: &Tensors, also: impl Fn(&str) -> bool) -> Self {
        let mut grouped = Self::default();
        for (name, tensor) in tensors {
            let known = |name: &str| tensors.contains_key(name) || also(name);
            match split(name, known) {
                Some((parameter, style)) => {
                    let state = grouped.states.entry(style).or_default();
                    state.insert(parameter, tensor.clone());
                }
                None => {
                    grouped.parameters.insert(name.clone(), tensor.clone());
                }
            }
        }
        grouped.imply();
        grouped
    }

    fn imply(&mut self) {
        let states = self.states.iter().filter(|(style, _)| !style.scalar);
        for (name, tensor) in states.flat_map(|(_, state)| state) {
            if !self.parameters.contains_key(name) {
                self.parameters.insert(name.clone(), tensor.clone());
                self.implied.push(name.clone());
            }
        }
    }

    /// In how many shards a parameter and its state are held: each number found.
    pub(crate) fn shards(&self, name: &str) -> Vec<usize> {
        let states = self.states.iter().filter(|(style, _)| !style.scalar);
        let states = states.filter_map(|(_, state)| state.get(name));
        let all = self.parameters.get(name).into_iter().chain(states);
        let mut counts: Vec<usize> = all.map(|tensor: &Tensor| tensor.shards).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}
