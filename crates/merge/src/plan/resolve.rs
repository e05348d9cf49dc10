//! One tensor of the result: where it comes from, its type and shape, its method.

use super::sections::{Output, Scope};
use super::{Planner, TensorPlan};
use crate::layers::has_token_rows;
use crate::methods::Method;
use crate::number::{is_float, promoted};
use cairn_checkpoint::StoredTensor;
use cairn_tensor::{DType, element_count};

impl Planner<'_> {
    /// Adds one tensor, made from the tensor `names[i]` of each source `i`.
    pub(super) fn tensor(&mut self, scope: &Scope, output: Output, names: Vec<String>) {
        let Some(found) = self.find(scope, &output.name, names) else {
            return;
        };
        let mut order: Vec<usize> = (0..found.len()).collect();
        if let Some(base) = scope.base {
            order.retain(|source| *source != base);
            order.insert(0, base);
        }
        let has_token_rows = self.vocabulary.is_some() && has_token_rows(&output.name);
        let Some(shape) = self.shape(scope, &output.name, &found, has_token_rows) else {
            return;
        };
        let dtypes = found.iter().map(|(_, tensor)| tensor.dtype);
        let stored = dtypes.reduce(promoted).unwrap_or(DType::F32);
        let is_float = found.iter().all(|(_, tensor)| is_float(tensor.dtype));
        let config = self.config;
        let (arithmetic, written, method) = match is_float {
            true => {
                let arithmetic = config.dtype.unwrap_or(stored);
                let inputs: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
                let Some(method) = self.method(scope, &output, &inputs, &shape) else {
                    return;
                };
                (arithmetic, config.out_dtype.unwrap_or(arithmetic), method)
            }
            false => (stored, stored, Method::Pass { scale: None }),
        };
        let mut inputs: Vec<(usize, String)> = order
            .iter()
            .map(|source| (scope.sources[*source].model, found[*source].0.clone()))
            .collect();
        let mut has_base = scope.base.is_some();
        if let (Method::Pass { .. }, true) = (&method, is_float) {
            // With nothing to merge it with, one tensor stays as it is: the last, which is the base where it is alone.
            inputs.drain(..inputs.len() - 1);
            has_base = false;
        }
        self.tensors.push(TensorPlan {
            name: output.name,
            tensor: StoredTensor {
                dtype: written,
                shape,
            },
            arithmetic,
            inputs,
            has_base,
            method,
            has_token_rows,
        });
    }

    /// The tensors that go into one of the result, by the sources.
    fn find(
        &mut self,
        scope: &Scope,
        output: &str,
        names: Vec<String>,
    ) -> Option<Vec<(String, StoredTensor)>> {
        let mut found = Vec::new();
        let mut lacking = Vec::new();
        for (source, name) in scope.sources.iter().zip(names) {
            let model = &self.models[source.model];
            let name = match model.names.contains(&name) {
                true => Some(name),
                false => tied(&name, model.names.iter()),
            };
            match name.and_then(|name| model.find(&name).map(|tensor| (name, tensor))) {
                Some(tensor) => found.push(tensor),
                None => lacking.push(model.reference.to_string()),
            }
        }
        if lacking.is_empty() {
            return Some(found);
        }
        self.problem(format!("`{output}` is not in {}", lacking.join(", ")));
        None
    }

    fn shape(
        &mut self,
        scope: &Scope,
        name: &str,
        found: &[(String, StoredTensor)],
        has_token_rows: bool,
    ) -> Option<Vec<usize>> {
        let mut shape = found.first()?.1.shape.clone();
        let skip = usize::from(has_token_rows);
        let differs = |(_, tensor): &&(String, StoredTensor)| {
            tensor.shape.len() != shape.len() || tensor.shape[skip..] != shape[skip..]
        };
        if found.iter().any(|tensor| differs(&tensor)) {
            let shapes: Vec<String> = found
                .iter()
                .zip(&scope.sources)
                .map(|((_, tensor), source)| {
                    format!(
                        "{:?} in `{}`",
                        tensor.shape, self.models[source.model].reference
                    )
                })
                .collect();
            let why = if crate::layers::has_token_rows(name) {
                "; the models have different tokens"
            } else {
                ""
            };
            self.problem(format!("`{name}` is {}{why}", shapes.join(" and ")));
            return None;
        }
        if let (true, Some(vocabulary)) = (has_token_rows, self.vocabulary) {
            shape[0] = vocabulary.rows();
        }
        let fits = element_count(&shape).is_some_and(|count| count.checked_mul(8).is_some());
        if !fits {
            self.problem(format!("`{name}` is larger than the address space"));
        }
        fits.then_some(shape)
    }
}

/// The name under which a model that shares its embedding keeps what another calls `name`.
fn tied<'a>(name: &str, mut names: impl Iterator<Item = &'a String>) -> Option<String> {
    let ends = ["embed_tokens.weight", "wte.weight"];
    let shared = |known: &&String| ends.iter().any(|end| known.ends_with(end));
    match name.ends_with("lm_head.weight") {
        true => names.find(shared).cloned(),
        false => None,
    }
}
