//! Which steps of a run stay.

use crate::errors::{OrRaise, raise};
use cairn::checkpoint::parse_age;
use cairn::checkpoint::retention::{Abandoned, Best, Keep, Within};
use pyo3::prelude::*;

/// Which steps stay.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Policy(pub(crate) Keep);

#[pymethods]
impl Policy {
    #[new]
    fn new(
        last: usize,
        every: Option<u64>,
        best: Vec<String>,
        within: Vec<String>,
        abandoned: &str,
        grace: &str,
        read_share: f64,
    ) -> PyResult<Self> {
        let grace = parse_age(grace).map_err(|expected| {
            let message = format!("grace={grace:?} is no length of time");
            raise("StateError", &message, Some(expected), None)
        })?;
        if !(0.0..=1.0).contains(&read_share) {
            let message = format!("read_data={read_share} is no share of the bytes");
            let hint = "give a number from 0 to 1".to_string();
            return Err(raise("StateError", &message, Some(hint), None));
        }
        let best: Result<_, _> = best.iter().map(|rule| rule.parse::<Best>()).collect();
        let within: Result<_, _> = within.iter().map(|rule| rule.parse::<Within>()).collect();
        let abandoned: Result<Abandoned, _> = abandoned.parse();
        Ok(Self(Keep {
            last,
            every,
            best: best.or_raise()?,
            within: within.or_raise()?,
            abandoned: abandoned.or_raise()?,
            grace,
            read_share,
        }))
    }
}
