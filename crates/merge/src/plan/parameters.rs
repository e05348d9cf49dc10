//! The method of one tensor, with the parameters that apply to it.

use super::Planner;
use super::sections::{Output, Scope};
use crate::config::paddle::Extras;
use crate::methods::{Combine, Election, Method, Rescale, Rule, Task, Tasks, Thinning};
use crate::operands::Lanes;
use crate::spec::{Default, Parameter};

/// Above this cosine, slerp goes straight.
const STRAIGHT: f64 = 0.9995;
/// Vectors shorter than this have no direction.
const LEAST_NORM: f64 = 1e-8;

/// Looks up the parameters of one tensor.
struct Lookup<'p, 'a, 'b> {
    planner: &'p mut Planner<'a>,
    scope: &'b Scope<'b>,
    output: &'b Output,
    /// The name of the tensor in each source.
    inputs: &'b [&'b str],
    is_complete: bool,
}

impl Lookup<'_, '_, '_> {
    /// A parameter of the tensor, or of one source.
    fn find(&self, parameter: &Parameter, source: Option<usize>) -> Option<f64> {
        let (config, scope) = (self.planner.config, self.scope);
        let own = source.and_then(|source| scope.sources[source].parameters);
        let slice = scope.slice.map(|slice| &slice.parameters);
        let places = [
            own,
            slice,
            Some(&scope.module.parameters),
            Some(&config.parameters),
        ];
        let name = source.map_or(self.output.name.as_str(), |source| self.inputs[source]);
        let set = places
            .into_iter()
            .flatten()
            .find_map(|settings| settings.value(parameter.name, name, self.output.depth));
        match parameter.default {
            Default::Value(value) => set.or(Some(value)),
            Default::Required | Default::Absent => set,
        }
    }

    fn get(&mut self, name: &str, source: Option<usize>) -> f64 {
        let parameter = self
            .planner
            .config
            .method
            .parameter(name)
            .expect("a parameter of the method");
        if let Some(value) = self.find(parameter, source) {
            return value;
        }
        self.is_complete = false;
        let whose = match source {
            Some(source) => {
                let model = self.scope.sources[source].model;
                format!("`{}`", self.planner.models[model].reference)
            }
            None => "the merge".into(),
        };
        let method = self.planner.config.method.name;
        self.planner
            .problem(format!("`{method}` needs a `{name}` for {whose}"));
        0.0
    }

    fn shared(&mut self, name: &str) -> f64 {
        self.get(name, None)
    }

    fn is_set(&mut self, name: &str) -> bool {
        self.get(name, None) != 0.0
    }

    /// The sources that are not the base.
    fn others(&self) -> Vec<usize> {
        let base = self.scope.base;
        (0..self.inputs.len())
            .filter(|source| Some(*source) != base)
            .collect()
    }

    fn weights(&mut self) -> Vec<f64> {
        let others = self.others();
        others
            .into_iter()
            .map(|source| self.get("weight", Some(source)))
            .collect()
    }
}

impl<'a> Planner<'a> {
    /// The method of one tensor; `None` if something is missing, which is told.
    pub(super) fn method(
        &mut self,
        scope: &Scope,
        output: &Output,
        inputs: &[&str],
        shape: &[usize],
    ) -> Option<Method> {
        let name = self.config.method.name;
        let extras = self.config.paddle.as_ref();
        let mut lookup = Lookup {
            planner: self,
            scope,
            output,
            inputs,
            is_complete: true,
        };
        let method = match extras {
            Some(extras) => paddle(&mut lookup, name, extras, shape),
            None => mergekit(&mut lookup, name, shape),
        };
        lookup.is_complete.then_some(method)
    }
}

fn mergekit(lookup: &mut Lookup, name: &str, shape: &[usize]) -> Method {
    let others = lookup.others();
    match name {
        "passthrough" => {
            let scale = lookup.planner.config.method.parameter("scale");
            let scale = scale.and_then(|scale| lookup.find(scale, Some(0)));
            Method::Pass { scale }
        }
        "linear" => {
            let weights = lookup.weights();
            let normalize = lookup.is_set("normalize");
            check_sum(lookup, &weights, normalize);
            Method::Linear { weights, normalize }
        }
        "nearswap" => Method::NearSwap {
            t: lookup.shared("t"),
        },
        "arcee_fusion" => Method::Fusion,
        "multislerp" | "karcher" if others.len() == 1 => Method::Pass { scale: None },
        "slerp" | "nuslerp" | "multislerp" | "karcher" | "model_stock" => {
            Method::Combine(combine(lookup, name, shape))
        }
        _ if others.is_empty() => Method::Pass { scale: None },
        "sce" => Method::Sce {
            select_topk: lookup.shared("select_topk"),
        },
        _ => tasks(lookup, name, &others),
    }
}

/// The methods whose factors follow from inner products.
fn combine(lookup: &mut Lookup, name: &str, shape: &[usize]) -> Combine {
    let whole = Lanes::whole(shape.iter().product());
    // Slerp begins its arc at the base; the others look at the differences to it.
    let from_base = lookup.scope.base.is_some() && name != "slerp";
    let (rule, lanes) = match name {
        "slerp" => {
            let rule = Rule::Arc {
                t: lookup.shared("t"),
                least_norm: LEAST_NORM,
                threshold: STRAIGHT,
            };
            (rule, whole)
        }
        "nuslerp" => {
            let weights = lookup.weights();
            let sum: f64 = weights.iter().sum();
            let t = match sum.abs() < 1e-6 {
                true => 0.5,
                false => weights.get(1).copied().unwrap_or(0.0) / sum,
            };
            let row_wise = lookup.is_set("nuslerp_row_wise");
            let lanes = match lookup.is_set("nuslerp_flatten") {
                true => whole,
                false if row_wise => Lanes::along(shape, 0),
                false => Lanes::rows(shape),
            };
            (Rule::FineArc { t }, lanes)
        }
        "multislerp" => {
            let weights = lookup.weights();
            let normalize = lookup.is_set("normalize_weights");
            check_sum(lookup, &weights, normalize);
            let rule = Rule::Tangent {
                weights,
                normalize,
                epsilon: lookup.shared("eps"),
            };
            (rule, whole)
        }
        "karcher" => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small number of steps"
            )]
            let max_iterations = lookup.shared("max_iter").clamp(0.0, 1e6) as usize;
            let rule = Rule::Karcher {
                max_iterations,
                tolerance: lookup.shared("tol"),
            };
            (rule, whole)
        }
        _ => match lookup.is_set("filter_wise") {
            true => (Rule::Stock, Lanes::rows(shape)),
            false => (Rule::Stock, whole),
        },
    };
    Combine {
        rule,
        from_base,
        lanes,
    }
}

/// The methods that merge what models changed in a base model.
fn tasks(lookup: &mut Lookup, name: &str, others: &[usize]) -> Method {
    let mut tasks = Vec::new();
    for source in others {
        let density = lookup.get("density", Some(*source));
        let thinning = match name {
            "task_arithmetic" => Thinning::All,
            _ if density >= 1.0 => Thinning::All,
            "ties" if density <= 0.0 => Thinning::Nothing,
            "ties" => Thinning::Largest { density },
            "dare_linear" | "dare_ties" => Thinning::Random { density },
            "breadcrumbs" | "breadcrumbs_ties" => Thinning::Middle {
                density: density.max(0.0),
                gamma: lookup.get("gamma", Some(*source)).clamp(0.0, 1.0),
            },
            _ if density <= 0.0 => Thinning::Nothing,
            _ => {
                let epsilon = lookup.get("epsilon", Some(*source));
                if density - epsilon <= 0.0 || density + epsilon >= 1.0 {
                    lookup.is_complete = false;
                    let reason = format!(
                        "`density` {density} ± `epsilon` {epsilon} does not lie between 0 and 1"
                    );
                    lookup.planner.problem(reason);
                }
                Thinning::Ranked { density, epsilon }
            }
        };
        let weight = lookup.get("weight", Some(*source));
        tasks.push(Task { weight, thinning });
    }
    let votes = ["ties", "dare_ties", "della", "breadcrumbs_ties"].contains(&name);
    Method::Tasks(Tasks {
        tasks,
        election: votes.then_some(Election::Sum),
        rescale: if lookup.is_set("rescale") {
            Rescale::Sum
        } else {
            Rescale::No
        },
        normalize: lookup.is_set("normalize"),
        lambda: lookup.shared("lambda"),
    })
}

fn check_sum(lookup: &mut Lookup, weights: &[f64], normalize: bool) {
    if normalize && lookup.is_complete && weights.iter().sum::<f64>() == 0.0 {
        lookup.is_complete = false;
        let name = &lookup.output.name;
        let reason = format!("the weights of `{name}` add up to 0 and cannot be normalised");
        lookup.planner.problem(reason);
    }
}

/// The methods as Paddle means them.
fn paddle(lookup: &mut Lookup, name: &str, extras: &Extras, shape: &[usize]) -> Method {
    let others = lookup.others();
    let from_base = lookup.scope.base.is_some();
    if name == "passthrough" {
        // An adapter alone.
        return Method::Pass { scale: None };
    }
    if name == "slerp" {
        return Method::Combine(Combine {
            rule: Rule::Arc {
                t: extras.slerp_alpha,
                least_norm: extras.slerp_normalize_eps,
                threshold: extras.slerp_dot_threshold,
            },
            from_base,
            lanes: Lanes::whole(shape.iter().product()),
        });
    }
    let weights = lookup.weights();
    if name == "linear" && !from_base {
        check_sum(lookup, &weights, extras.normalize);
        let normalize = extras.normalize;
        return Method::Linear { weights, normalize };
    }
    let (density, epsilon) = (extras.reserve_p, extras.epsilon);
    let thinning = match name {
        "linear" => Thinning::All,
        "ties" => Thinning::Quantile { density },
        "dare_linear" | "dare_ties" => Thinning::Random { density },
        _ => Thinning::RankedWhole { density, epsilon },
    };
    let task = |weight: &f64| Task {
        weight: *weight,
        thinning,
    };
    let votes = ["ties", "dare_ties", "della"].contains(&name);
    debug_assert_eq!(others.len(), weights.len());
    Method::Tasks(Tasks {
        tasks: weights.iter().map(task).collect(),
        election: votes.then_some(extras.election),
        rescale: match (extras.rescale, thinning) {
            (false, _) => Rescale::No,
            (true, Thinning::Quantile { .. }) => Rescale::Sum,
            (true, _) => Rescale::Probability,
        },
        normalize: votes || extras.normalize,
        lambda: 1.0,
    })
}
