//! The merge methods: what each is called, how many models it takes, and which parameters it knows.

/// What a method does with the base model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// It is a model like the others.
    Ignored,
    /// Without one, weights are merged; with one, the differences to it.
    Optional,
    /// The differences to it are merged.
    Required,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Float,
    /// A whole number.
    Int,
    /// True or false.
    Bool,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Float => "a number",
            Kind::Int => "a whole number",
            Kind::Bool => "true or false",
        }
    }
}

/// What a parameter is when nobody sets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    /// It has to be set.
    Required,
    /// What it is for is not done.
    Absent,
    /// This value; truth values are 0 and 1.
    Value(f64),
}

/// A parameter of a method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name in a config.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it is when nobody sets it.
    pub default: Default,
    /// Whether each model has its own; otherwise one serves a tensor.
    pub per_model: bool,
}

/// A merge method.
#[derive(Debug, PartialEq)]
pub struct Spec {
    /// Its name in a config.
    pub name: &'static str,
    /// What it does in one sentence.
    pub summary: &'static str,
    /// What it does with the base model.
    pub base: Base,
    /// The fewest and the most models beside the base model; of all models where the base is ignored.
    pub models: (usize, usize),
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Whether it draws random numbers.
    pub is_random: bool,
}

impl Spec {
    /// The parameter called `name`.
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name == name)
    }
}

/// The method called `name`.
pub fn find(name: &str) -> Option<&'static Spec> {
    METHODS.iter().find(|spec| spec.name == name)
}

/// Whether any method has a parameter called `name`.
pub(crate) fn is_parameter(name: &str) -> bool {
    METHODS.iter().any(|spec| spec.parameter(name).is_some())
}

/// The names of the parameters of one method, or of all.
pub(crate) fn parameter_names(spec: Option<&'static Spec>) -> Vec<&'static str> {
    let of = |spec: &'static Spec| spec.parameters.iter().map(|parameter| parameter.name);
    match spec {
        Some(spec) => of(spec).collect(),
        None => METHODS.iter().flat_map(of).collect(),
    }
}

const MANY: usize = usize::MAX;

const fn shared(name: &'static str, kind: Kind, default: Default) -> Parameter {
    Parameter {
        name,
        kind,
        default,
        per_model: false,
    }
}

const fn each(name: &'static str, default: Default) -> Parameter {
    Parameter {
        name,
        kind: Kind::Float,
        default,
        per_model: true,
    }
}

const fn flag(name: &'static str, on: bool) -> Parameter {
    shared(name, Kind::Bool, Default::Value(if on { 1.0 } else { 0.0 }))
}

const WEIGHT: Parameter = each("weight", Default::Required);
const DENSITY: Parameter = each("density", Default::Value(1.0));
const LAMBDA: Parameter = shared("lambda", Kind::Float, Default::Value(1.0));
/// Saves memory elsewhere; here masks are bits anyway.
const INT8_MASK: Parameter = flag("int8_mask", false);

macro_rules! task_parameters {
    ($normalize:literal, $rescale:literal $(, $more:expr)*) => {
        &[WEIGHT, DENSITY, LAMBDA, INT8_MASK, flag("normalize", $normalize), flag("rescale", $rescale) $(, $more)*]
    };
}

const EPSILON: Parameter = each("epsilon", Default::Value(0.15));
const GAMMA: Parameter = each("gamma", Default::Value(0.01));

/// A method that merges what models changed in a base model.
const fn task(
    name: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    is_random: bool,
) -> Spec {
    Spec {
        name,
        summary,
        base: Base::Required,
        models: (0, MANY),
        parameters,
        is_random,
    }
}

/// Every method.
pub const METHODS: &[Spec] = &[
    Spec {
        name: "linear",
        summary: "the weighted mean",
        base: Base::Ignored,
        models: (1, MANY),
        parameters: &[WEIGHT, flag("normalize", true)],
        is_random: false,
    },
    Spec {
        name: "slerp",
        summary: "the point `t` along the arc from the base model to another",
        base: Base::Required,
        models: (1, 1),
        parameters: &[shared("t", Kind::Float, Default::Required)],
        is_random: false,
    },
    Spec {
        name: "nuslerp",
        summary: "a point on the arc between two models, by their weights",
        base: Base::Optional,
        models: (2, 2),
        parameters: &[
            WEIGHT,
            flag("nuslerp_flatten", true),
            flag("nuslerp_row_wise", false),
        ],
        is_random: false,
    },
    Spec {
        name: "multislerp",
        summary: "a weighted mean on the sphere, by way of a tangent plane",
        base: Base::Optional,
        models: (1, MANY),
        parameters: &[
            WEIGHT,
            flag("normalize_weights", true),
            shared("eps", Kind::Float, Default::Value(1e-8)),
        ],
        is_random: false,
    },
    Spec {
        name: "karcher",
        summary: "the mean on the sphere, found step by step",
        base: Base::Ignored,
        models: (1, MANY),
        parameters: &[
            shared("max_iter", Kind::Int, Default::Value(10.0)),
            shared("tol", Kind::Float, Default::Value(1e-5)),
        ],
        is_random: false,
    },
    task(
        "task_arithmetic",
        "the base and the weighted sum of all changes to it",
        task_parameters!(false, false),
        false,
    ),
    task(
        "ties",
        "the largest changes, where models agree on the sign",
        task_parameters!(true, false),
        false,
    ),
    task(
        "dare_linear",
        "changes thinned out at random and summed",
        task_parameters!(false, true),
        true,
    ),
    task(
        "dare_ties",
        "changes thinned out at random, where models agree on the sign",
        task_parameters!(false, true),
        true,
    ),
    task(
        "della",
        "changes thinned out at random, small ones more, where models agree on the sign",
        task_parameters!(true, true, EPSILON),
        true,
    ),
    task(
        "della_linear",
        "changes thinned out at random, small ones more, and summed",
        task_parameters!(false, true, EPSILON),
        true,
    ),
    task(
        "breadcrumbs",
        "changes without the smallest and the very largest, summed",
        task_parameters!(false, false, GAMMA),
        false,
    ),
    task(
        "breadcrumbs_ties",
        "changes without the smallest and the very largest, where models agree on the sign",
        task_parameters!(false, false, GAMMA),
        false,
    ),
    task(
        "sce",
        "the changes that vary most, weighted by their energy, where models agree on the sign",
        &[
            INT8_MASK,
            shared("select_topk", Kind::Float, Default::Value(1.0)),
        ],
        false,
    ),
    Spec {
        name: "model_stock",
        summary: "towards the mean of the models, by how much their changes agree",
        base: Base::Required,
        models: (2, MANY),
        parameters: &[flag("filter_wise", false)],
        is_random: false,
    },
    Spec {
        name: "nearswap",
        summary: "the base, pulled to the other model where the two are close",
        base: Base::Required,
        models: (1, 1),
        parameters: &[shared("t", Kind::Float, Default::Required)],
        is_random: false,
    },
    Spec {
        name: "arcee_fusion",
        summary: "the base, with the other model's most important changes",
        base: Base::Required,
        models: (1, 1),
        parameters: &[],
        is_random: false,
    },
    Spec {
        name: "passthrough",
        summary: "one model's tensors as they are, perhaps scaled",
        base: Base::Ignored,
        models: (1, 1),
        parameters: &[each("scale", Default::Absent)],
        is_random: false,
    },
];
