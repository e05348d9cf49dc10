//! Small things that tests are made of.

use crate::{Bucket, Init, Parameter};

/// A parameter with random first values.
pub(crate) fn parameter(name: &str, shape: &[usize], split: Option<usize>) -> Parameter {
    Parameter {
        name: name.into(),
        shape: shape.to_vec(),
        split,
        init: Init::Normal { deviation: 0.02 },
        decay: true,
        partial_gradient: false,
    }
}

/// A bucket of flat parameters of these lengths.
pub(crate) fn bucket_of(lens: &[usize]) -> Bucket {
    let lens = lens.iter().enumerate();
    let parameters = lens.map(|(index, len)| parameter(&format!("p{index}"), &[*len], None));
    Bucket::new(parameters.collect(), 0, 1)
}
