//! Everything in a tree of containers, found at the speed of memory: how a save sees that a state is built as it was.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// The most levels of containers in a tree; deeper ones, and those that contain themselves, are left to the ordinary walk.
const MAX_DEPTH: usize = 100;

type List<'py> = Bound<'py, PyList>;

/// What is in a tree of dicts, lists and tuples, each container before what it holds: the keys and lengths of the containers, and
/// everything found, the containers among it. Only objects of exactly the classes in `mappings`, lists and tuples are
/// looked into, and objects of the classes in `attributes`, at the attributes named there: `None` is found for those they lack.
/// Returns `None` if the tree is too deep.
#[pyfunction]
pub(crate) fn census<'py>(
    tree: Bound<'py, PyAny>,
    mappings: &Bound<'py, PyTuple>,
    attributes: Bound<'py, PyDict>,
) -> PyResult<Option<(List<'py>, List<'py>)>> {
    let py = tree.py();
    let mut census = Census {
        py,
        mappings: mappings.iter().collect(),
        has_attributes: !attributes.is_empty(),
        attributes,
        shape: Vec::new(),
        found: Vec::new(),
    };
    if !census.visit(&tree, 0)? {
        return Ok(None);
    }
    let shape = PyList::new(py, census.shape)?;
    Ok(Some((shape, PyList::new(py, census.found)?)))
}

struct Census<'py> {
    py: Python<'py>,
    mappings: Vec<Bound<'py, PyAny>>,
    attributes: Bound<'py, PyDict>,
    has_attributes: bool,
    shape: Vec<Bound<'py, PyAny>>,
    found: Vec<Bound<'py, PyAny>>,
}

impl<'py> Census<'py> {
    /// Whether everything in `value` could be looked at. No code of Python's runs meanwhile, so that nothing changes.
    fn visit(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<bool> {
        self.found.push(value.clone());
        if let Ok(list) = value.cast_exact::<PyList>() {
            return self.visit_all(list.len(), list.iter(), depth);
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return self.visit_all(tuple.len(), tuple.iter(), depth);
        }
        match value.cast::<PyDict>() {
            Ok(dict) if self.is_mapping(value) => {
                self.shape.extend(dict.iter().map(|(key, _)| key));
                self.visit_all(dict.len(), dict.iter().map(|(_, child)| child), depth)
            }
            _ if self.has_attributes => self.visit_attributes(value, depth),
            _ => Ok(true),
        }
    }

    fn visit_attributes(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<bool> {
        let Some(names) = self.attributes.get_item(value.get_type())? else {
            return Ok(true);
        };
        let (names, held) = (
            names.cast_into::<PyTuple>()?,
            value.getattr(intern!(self.py, "__dict__"))?,
        );
        let held = held.cast_into::<PyDict>()?;
        for name in names {
            let found = held.get_item(name)?;
            let found = found.unwrap_or_else(|| self.py.None().into_bound(self.py));
            if !self.visit(&found, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn visit_all(
        &mut self,
        len: usize,
        children: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<bool> {
        let len = len.into_pyobject(self.py)?;
        self.shape.push(len.into_any());
        if depth == MAX_DEPTH {
            return Ok(false);
        }
        for child in children {
            if !self.visit(&child, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_mapping(&self, value: &Bound<'py, PyAny>) -> bool {
        let kind = value.get_type();
        self.mappings.iter().any(|mapping| kind.is(mapping))
    }
}
