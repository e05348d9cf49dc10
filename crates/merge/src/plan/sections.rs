//! The parts of a config: whole models, or layers put on top of each other.

use super::Planner;
use crate::config::{Body, InputModel, ModelReference, Module, OutputSlice, Settings};
use crate::layers::{LayerName, is_before_layers, stacks};
use crate::spec::Base;
use std::collections::BTreeSet;

/// Where tensors come from and which parameters apply.
pub(super) struct Scope<'a> {
    pub(super) module: &'a Module,
    pub(super) slice: Option<&'a OutputSlice>,
    pub(super) sources: Vec<Source<'a>>,
    /// Which of the sources is the base model.
    pub(super) base: Option<usize>,
}

/// A model among the sources, and its own parameters.
pub(super) struct Source<'a> {
    pub(super) model: usize,
    pub(super) parameters: Option<&'a Settings>,
}

/// What a tensor of the result is called, and where in the depth of the model it lies.
pub(super) struct Output {
    pub(super) name: String,
    pub(super) depth: f64,
}

impl<'a> Planner<'a> {
    pub(super) fn module(&mut self, module: &'a Module) {
        match &module.body {
            Body::Models(inputs) => self.whole(module, inputs),
            Body::Slices(slices) => self.stacked(module, slices),
        }
    }

    fn number(&self, model: &ModelReference) -> usize {
        self.numbers[model]
    }

    /// Merges whole models.
    fn whole(&mut self, module: &'a Module, inputs: &'a [InputModel]) {
        let source = |input: &'a InputModel| Source {
            model: self.number(&input.model),
            parameters: Some(&input.parameters),
        };
        let mut sources: Vec<Source> = inputs.iter().map(source).collect();
        let base = self
            .config
            .base_model
            .as_ref()
            .map(|base| self.number(base));
        if let Some(model) = base.filter(|base| sources.iter().all(|source| source.model != *base))
        {
            sources.push(Source {
                model,
                parameters: None,
            });
        }
        let Some(scope) = self.scope(module, None, sources, base) else {
            return;
        };
        let names = self.names(module, &scope);
        let depths = stacks(names.iter().map(String::as_str));
        for name in &names {
            let layer = LayerName::of(name);
            let depth = layer.map_or(0.0, |layer| depth(layer.layer, depths[layer.stack]));
            let inputs = vec![name.clone(); scope.sources.len()];
            let name = name.clone();
            self.tensor(&scope, Output { name, depth }, inputs);
        }
    }

    /// Puts layers on top of each other.
    fn stacked(&mut self, module: &'a Module, slices: &'a [OutputSlice]) {
        let scopes: Vec<Scope> = slices
            .iter()
            .filter_map(|slice| self.slice(module, slice))
            .collect();
        let (Some(first), Some(last)) = (scopes.first(), scopes.last()) else {
            return;
        };
        let Some(stack) = self.stack(module, first) else {
            return;
        };
        let outside = |name: &String| LayerName::of(name).is_none_or(|layer| layer.stack != stack);
        let ends = [(first, true), (last, false)];
        for (scope, before) in ends {
            let mut names = self.names(module, scope);
            names.retain(|name| outside(name) && is_before_layers(name) == before);
            for name in names {
                let inputs = vec![name.clone(); scope.sources.len()];
                self.tensor(scope, Output { name, depth: 0.0 }, inputs);
            }
        }
        let mut next = 0;
        for scope in &scopes {
            next = self.layers(module, scope, &stack, next);
        }
        let order = |name: &str| {
            (
                LayerName::of(name).map(|layer| layer.layer),
                is_before_layers(name),
            )
        };
        self.tensors
            .sort_by_key(|tensor| match order(&tensor.name) {
                (Some(layer), _) => (1, layer),
                (None, before) => (if before { 0 } else { 2 }, 0),
            });
    }

    /// Adds the layers of one slice, the first of which is layer `next` of the result; returns the one after the last.
    fn layers(&mut self, module: &Module, scope: &Scope, stack: &str, mut next: usize) -> usize {
        let Some(slice) = scope.slice else {
            return next;
        };
        let names = self.names(module, scope);
        let starts: Vec<usize> = slice.sources.iter().map(|source| source.layers.0).collect();
        let count = slice
            .sources
            .first()
            .map_or(0, |source| source.layers.1 - source.layers.0);
        for index in 0..count {
            let mut rests = BTreeSet::new();
            for layer in names.iter().filter_map(|name| LayerName::of(name)) {
                let known = |start: &usize| layer.layer == start + index;
                if layer.stack == stack && starts.iter().any(known) {
                    rests.insert(layer.rest);
                }
            }
            for rest in rests {
                let at = |layer: usize| LayerName { stack, layer, rest }.at(layer);
                let inputs = starts.iter().map(|start| at(start + index)).collect();
                let output = Output {
                    name: at(next),
                    depth: depth(index, count),
                };
                self.tensor(scope, output, inputs);
            }
            next += 1;
        }
        next
    }

    fn slice(&mut self, module: &'a Module, slice: &'a OutputSlice) -> Option<Scope<'a>> {
        let source = |source: &'a crate::config::InputSlice| Source {
            model: self.number(&source.model),
            parameters: Some(&source.parameters),
        };
        let sources = slice.sources.iter().map(source).collect();
        let base = slice
            .base_model
            .as_ref()
            .or(self.config.base_model.as_ref());
        let base = base.map(|base| self.number(base));
        self.scope(module, Some(slice), sources, base)
    }

    /// Checks that a method takes these models.
    fn scope(
        &mut self,
        module: &'a Module,
        slice: Option<&'a OutputSlice>,
        sources: Vec<Source<'a>>,
        base: Option<usize>,
    ) -> Option<Scope<'a>> {
        let spec = self.config.method;
        let place = match slice {
            Some(slice) => format!("the slice on line {}", slice.line),
            None => "this merge".to_string(),
        };
        let before = self.problems.len();
        let mut seen = BTreeSet::new();
        if let Some(twice) = sources.iter().find(|source| !seen.insert(source.model)) {
            let model = &self.models[twice.model].reference;
            self.problem(format!("{place} has `{model}` twice"));
        }
        let base_source = sources.iter().position(|source| Some(source.model) == base);
        let (policy, (least, most)) = self.config.policy();
        let base_source = base_source.filter(|_| policy != Base::Ignored);
        if policy == Base::Required && base_source.is_none() {
            let reason = match base {
                Some(base) => format!(
                    "its base model `{}` among its sources",
                    self.models[base].reference
                ),
                None => "a `base_model`".into(),
            };
            self.problem(format!("{place} needs {reason} for `{}`", spec.name));
        }
        let others = sources.len() - usize::from(base_source.is_some());
        if others < least || others > most {
            let wanted = match (least, most) {
                (least, most) if least == most => format!("{least}"),
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) => format!("{least} to {most}"),
            };
            let beside = if base_source.is_some() {
                " beside the base model"
            } else {
                ""
            };
            let reason = format!(
                "`{}` takes {wanted} models{beside}, and {place} has {others}",
                spec.name
            );
            self.problem(reason);
        }
        (self.problems.len() == before).then_some(Scope {
            module,
            slice,
            sources,
            base: base_source,
        })
    }

    /// The names of all tensors of a module, in the order of the model.
    fn names(&self, module: &Module, scope: &Scope) -> Vec<String> {
        let mut names = BTreeSet::new();
        for source in &scope.sources {
            names.extend(self.models[source.model].names.iter());
        }
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| self.belongs(module, name))
            .cloned()
            .collect();
        names.sort_by_cached_key(|name| match LayerName::of(name) {
            Some(layer) => (
                1,
                layer.stack.to_string(),
                layer.layer,
                layer.rest.to_string(),
            ),
            None => (
                if is_before_layers(name) { 0 } else { 2 },
                name.clone(),
                0,
                String::new(),
            ),
        });
        names
    }

    /// Whether a tensor belongs to a module: the one that its name speaks of, the first one otherwise.
    fn belongs(&self, module: &Module, name: &str) -> bool {
        if let Some(extras) = &self.config.paddle {
            // Paddle keeps the state of a training run in files of their own, and merges one kind at a time.
            let is_state = name.starts_with("optim.state.");
            let is_master = is_state && name.ends_with(".master_weight");
            if extras.masters != is_master || is_state != is_master {
                return false;
            }
        }
        let modules = &self.config.modules;
        let is_of = |module: &Module| {
            let wanted = module.name.as_deref();
            name.split('.').any(|part| Some(part) == wanted)
        };
        let owner = modules.iter().position(is_of).unwrap_or(0);
        modules
            .get(owner)
            .is_some_and(|owner| std::ptr::eq(owner, module))
    }

    /// The stack of layers that slices cut, and whether all slices lie in it.
    fn stack(&mut self, module: &Module, scope: &Scope) -> Option<String> {
        let names = self.names(module, scope);
        let found = stacks(names.iter().map(String::as_str));
        let deepest = found.values().max().copied().unwrap_or(0);
        let deep: Vec<&str> = found
            .iter()
            .filter(|(_, depth)| **depth > 1 || deepest == 1)
            .map(|(stack, _)| *stack)
            .collect();
        let [stack] = deep.as_slice() else {
            let found = deep.join("`, `");
            self.problem(match deep.is_empty() {
                true => "the models have no layers to slice".into(),
                false => {
                    format!("slices of which layers? There are `{found}`: say it with `modules`")
                }
            });
            return None;
        };
        let stack = (*stack).to_string();
        let Body::Slices(slices) = &module.body else {
            return Some(stack);
        };
        for source in slices.iter().flat_map(|slice| &slice.sources) {
            let model = &self.models[self.number(&source.model)];
            let depth = stacks(model.names.iter().map(String::as_str));
            let depth = depth.get(stack.as_str()).copied().unwrap_or(0);
            let (first, end) = source.layers;
            if end > depth {
                let reason = format!(
                    "`{}` has {depth} layers, not the layers {first} to {}",
                    source.model,
                    end - 1
                );
                self.problem(reason);
            }
        }
        Some(stack)
    }
}

/// Where in a stack of `count` layers a layer lies, from 0 to 1.
fn depth(layer: usize, count: usize) -> f64 {
    match count {
        0 | 1 => 1.0,
        count => layer as f64 / (count - 1) as f64,
    }
}
