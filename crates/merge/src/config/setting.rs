//! The value of a parameter: one for all tensors, one for each depth, or one for each kind of tensor.

use super::node::{Node, Value};
use super::problem::{Problem, did_you_mean};
use crate::spec::{self, Kind, Parameter};

/// Values of parameters by name, as one place of a config sets them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(Vec<(String, Setting)>);

/// The value of one parameter.
#[derive(Debug, Clone, PartialEq)]
enum Setting {
    /// Values spread evenly over the depth of a model, a single one everywhere.
    Gradient(Gradient),
    /// The first whose filter is part of the tensor's name.
    Filtered(Vec<(Option<String>, Gradient)>),
}

/// Numbers between which depth interpolates, or truth values among which it chooses.
#[derive(Debug, Clone, PartialEq)]
struct Gradient {
    kind: Kind,
    values: Vec<f64>,
}

impl Settings {
    /// Reads a `parameters` map for the method `spec`.
    pub(super) fn read(
        node: &Node,
        spec: Option<&'static spec::Spec>,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut settings = Vec::new();
        if node.value == Value::Null {
            return Self(settings);
        }
        let Some(entries) = node.entries() else {
            let reason = format!("`parameters` is a map, not {}", node.kind());
            problems.push(Problem::new(node.line, reason));
            return Self(settings);
        };
        for entry in entries {
            let key = entry.key.as_str();
            let parameter = spec.and_then(|spec| spec.parameter(key));
            match (parameter, spec::is_parameter(key)) {
                (Some(parameter), _) => match Setting::read(&entry.node, parameter) {
                    Ok(setting) => settings.push((entry.key.clone(), setting)),
                    Err(problem) => problems.push(problem),
                },
                (None, true) => {
                    if let Some(spec) = spec {
                        let reason = format!("`{}` does not use `{key}`", spec.name);
                        warnings.push(Problem::new(entry.line, reason));
                    }
                }
                (None, false) => {
                    let near = did_you_mean(key, spec::parameter_names(spec));
                    let reason = format!("no method has the parameter `{key}`{near}");
                    problems.push(Problem::new(entry.line, reason));
                }
            }
        }
        Self(settings)
    }

    /// Settings that give some parameters one value for all tensors.
    pub(super) fn constant(values: &[(&str, f64)]) -> Self {
        let one = |(name, value): &(&str, f64)| {
            let gradient = Gradient {
                kind: Kind::Float,
                values: vec![*value],
            };
            ((*name).to_string(), Setting::Gradient(gradient))
        };
        Self(values.iter().map(one).collect())
    }

    /// The value of `parameter` for the tensor `name` at `depth`, which runs from 0 to 1 through a model's layers.
    pub(crate) fn value(&self, parameter: &str, name: &str, depth: f64) -> Option<f64> {
        let (_, setting) = self.0.iter().find(|(known, _)| known == parameter)?;
        match setting {
            Setting::Gradient(gradient) => Some(gradient.at(depth)),
            Setting::Filtered(choices) => {
                let matches = |filter: &Option<String>| match filter.as_deref() {
                    None | Some("*") => true,
                    Some(part) => name.contains(part),
                };
                let found = choices.iter().find(|(filter, _)| matches(filter));
                found.map(|(_, gradient)| gradient.at(depth))
            }
        }
    }
}

impl Setting {
    fn read(node: &Node, parameter: &Parameter) -> Result<Self, Problem> {
        let is_choice = |node: &Node| node.entries().is_some();
        match &node.value {
            Value::Map(_) => Ok(Self::Filtered(vec![choice(node, parameter)?])),
            Value::List(items) if items.iter().any(is_choice) => {
                let choices = items.iter().map(|item| choice(item, parameter));
                Ok(Self::Filtered(choices.collect::<Result<_, _>>()?))
            }
            _ => Ok(Self::Gradient(Gradient::read(node, parameter)?)),
        }
    }
}

/// Reads `{filter: part of a name, value: …}`.
fn choice(node: &Node, parameter: &Parameter) -> Result<(Option<String>, Gradient), Problem> {
    let name = parameter.name;
    for entry in node.entries().unwrap_or_default() {
        if !["filter", "value"].contains(&entry.key.as_str()) {
            let near = did_you_mean(&entry.key, ["filter", "value"]);
            let reason = format!("a choice of `{name}` has no `{}`{near}", entry.key);
            return Err(Problem::new(entry.line, reason));
        }
    }
    let value = node.get("value").ok_or_else(|| {
        let reason = format!("a choice of `{name}` needs a `value` and may have a `filter`");
        Problem::new(node.line, reason)
    })?;
    let filter = match node.get("filter").map(|node| (&node.value, node.line)) {
        None | Some((Value::Null, _)) => None,
        Some((Value::Text(text), _)) => Some(text.clone()),
        Some((Value::Number(number), _)) => Some(number.to_string()),
        Some((_, line)) => return Err(Problem::new(line, "a `filter` is a part of a name")),
    };
    Ok((filter, Gradient::read(value, parameter)?))
}

impl Gradient {
    fn read(node: &Node, parameter: &Parameter) -> Result<Self, Problem> {
        let values = match &node.value {
            Value::List(items) if items.is_empty() => {
                let reason = format!("`{}` is an empty list", parameter.name);
                return Err(Problem::new(node.line, reason));
            }
            Value::List(items) => items.iter().map(|item| scalar(item, parameter)).collect(),
            _ => scalar(node, parameter).map(|value| vec![value]),
        };
        Ok(Self {
            kind: parameter.kind,
            values: values?,
        })
    }

    /// The value at a depth between 0 and 1.
    fn at(&self, depth: f64) -> f64 {
        let last = self.values.len() - 1;
        let place = depth.clamp(0.0, 1.0) * last as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place inside a list"
        )]
        let below = (place as usize).min(last);
        if self.kind == Kind::Bool {
            return self.values[below];
        }
        let above = (below + 1).min(last);
        let part = place - below as f64;
        (1.0 - part) * self.values[below] + part * self.values[above]
    }
}

fn scalar(node: &Node, parameter: &Parameter) -> Result<f64, Problem> {
    let value = match (&node.value, parameter.kind) {
        (Value::Number(number), Kind::Float) => Some(*number),
        (Value::Number(number), Kind::Int) if number.fract() == 0.0 => Some(*number),
        (Value::Number(number), Kind::Bool) if [0.0, 1.0].contains(number) => Some(*number),
        (Value::Bool(truth), _) => Some(f64::from(u8::from(*truth))),
        (Value::Text(text), Kind::Float | Kind::Int) => text.trim().parse().ok(),
        _ => None,
    };
    value.filter(|value| value.is_finite()).ok_or_else(|| {
        let reason = format!(
            "`{}` is {}, not {}",
            parameter.name,
            parameter.kind.name(),
            node.kind()
        );
        Problem::new(node.line, reason)
    })
}

#[cfg(test)]
mod tests {
    //! Which value a tensor gets, by depth and by name.

    use super::*;

    fn settings(text: &str) -> Settings {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let spec = spec::find("ties");
        let node = Node::parse(text).unwrap();
        let settings = Settings::read(&node, spec, &mut problems, &mut warnings);
        assert_eq!((problems, warnings), (vec![], vec![]));
        settings
    }

    #[test]
    fn a_gradient_is_interpolated_over_the_depth() {
        let settings = settings("weight: [0, 0.5, 1, 0]");
        let at = |depth| settings.value("weight", "w", depth).unwrap();
        assert_eq!([at(0.0), at(1.0)], [0.0, 0.0]);
        assert!((at(0.5) - 0.75).abs() < 1e-12);
        assert!((at(1.0 / 3.0) - 0.5).abs() < 1e-12);
        assert_eq!(settings.value("density", "w", 0.0), None);
    }

    #[test]
    fn truth_values_are_chosen_and_not_mixed() {
        let settings = settings("normalize: [true, false]");
        assert_eq!(settings.value("normalize", "w", 0.99), Some(1.0));
        assert_eq!(settings.value("normalize", "w", 1.0), Some(0.0));
    }

    #[test]
    fn the_first_filter_that_matches_decides() {
        let text =
            "weight:\n- {filter: mlp, value: [1, 2]}\n- {filter: attn, value: 3}\n- value: 4";
        let settings = settings(text);
        let of = |name| settings.value("weight", name, 1.0).unwrap();
        assert_eq!([of("a.mlp.b"), of("a.attn"), of("norm")], [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_tensor_that_no_filter_matches_falls_through() {
        let settings = settings("weight: {filter: mlp, value: 1}");
        assert_eq!(settings.value("weight", "attn", 0.0), None);
    }
}
