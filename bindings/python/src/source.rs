//! Something tensors can be loaded from: a step of a run, or a model in another format.

use crate::errors::{OrRaise, raise};
use crate::memory::bytes_mut;
use crate::recipe::{Asked, transformed, wanted};
use crate::report;
use crate::spec::Spec;
use cairn::checkpoint::{
    Checkpoint, DcpContents, LoadOptions, LoadPlan, ModelSource, OnProblem, Peers, RewriteOptions,
    Scope, SharedSource, Strictness, Target, Wanted, export_dcp, export_hf, load,
};
use numpy::PyReadwriteArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory to load into: name, placement, rank, memory, strides in elements if it is not row-major.
type Slot<'py> = (
    String,
    Py<Spec>,
    usize,
    PyReadwriteArray1<'py, u8>,
    Option<Vec<usize>>,
);

/// An opened checkpoint or model; no tensor data is read until it is asked for.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Source {
    stored: Stored,
    /// What a recipe makes of the stored tensors.
    made: Option<SharedSource>,
}

#[derive(Clone)]
enum Stored {
    Checkpoint(Arc<Checkpoint>),
    Model(Arc<ModelSource>),
}

/// Counts bytes while a load runs, for a progress bar.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Counter(Arc<AtomicU64>);

#[pymethods]
impl Counter {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// The bytes so far.
    #[getter]
    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[pymethods]
impl Source {
    /// The step, if this is a checkpoint.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.as_checkpoint().map(Checkpoint::step)
    }

    /// What it is: `cairn`, `hf`, `dcp`, `torch` …
    #[getter]
    fn format(&self) -> &'static str {
        match &self.stored {
            Stored::Checkpoint(_) => "cairn",
            Stored::Model(model) => model.model().format,
        }
    }

    /// When it was saved: RFC 3339, UTC.
    #[getter]
    fn created(&self) -> Option<String> {
        self.as_checkpoint()
            .map(|checkpoint| checkpoint.manifest().created.clone())
    }

    /// The words it was tagged with.
    #[getter]
    fn tags(&self, py: Python) -> PyResult<Vec<String>> {
        let checkpoint = self.as_checkpoint();
        py.detach(|| checkpoint.map_or(Ok(Vec::new()), |checkpoint| checkpoint.tags()))
            .or_raise()
    }

    /// The number of ranks that saved it.
    #[getter]
    fn world_size(&self) -> usize {
        self.as_checkpoint()
            .map_or(1, |checkpoint| checkpoint.manifest().writers())
    }

    /// Every name a tensor can be asked for by, in order.
    fn names(&self) -> Vec<String> {
        let names = self.source().names();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Those of the names that are only another name of a tensor.
    fn aliases(&self) -> BTreeMap<String, String> {
        self.source().aliases()
    }

    /// A tensor's element type and shape.
    fn find(&self, name: &str) -> Option<(&'static str, Vec<usize>)> {
        let found = self.source().find(name)?;
        Some((found.dtype.name(), found.shape))
    }

    /// A tensor's placement when it was saved, as text.
    fn placement(&self, name: &str) -> Option<String> {
        if self.made.is_some() {
            return None;
        }
        let layout = &self.as_checkpoint()?.manifest().layout;
        let stored = layout.find(name).map(|index| layout.spec(index).clone());
        let spec = stored.or_else(|| layout.derived_spec(name))?;
        Some(spec.to_string())
    }

    /// The tensors that are not stored, and which tensor each is the cast of.
    fn derived(&self) -> BTreeMap<String, String> {
        let stored = self.as_checkpoint().filter(|_| self.made.is_none());
        let layout = stored.map(|found| &found.manifest().layout);
        let derived = layout.into_iter().flat_map(|layout| layout.derived());
        derived
            .map(|(name, it)| (name.clone(), it.of.clone()))
            .collect()
    }

    /// Makes sure that every file of a checkpoint is there as it was written, but for its bytes.
    fn check(&self, py: Python) -> PyResult<()> {
        let Some(checkpoint) = self.as_checkpoint() else {
            return Ok(());
        };
        py.detach(|| checkpoint.check()).or_raise()
    }

    /// The plain values all ranks share, as JSON.
    fn values(&self) -> String {
        json(self.plain_values())
    }

    /// The plain values that a rank saved for itself, as JSON; None if the checkpoint had fewer ranks.
    fn rank_values(&self, py: Python, rank: usize) -> PyResult<Option<String>> {
        let Some(checkpoint) = self.as_checkpoint() else {
            return Ok(None);
        };
        let values = py.detach(|| checkpoint.rank_values(rank)).or_raise()?;
        Ok(values.as_ref().map(json))
    }

    /// Small files that travel with the tensors, by name.
    fn assets(&self, py: Python) -> PyResult<BTreeMap<String, Vec<u8>>> {
        let assets = py.detach(|| self.source().assets()).or_raise()?;
        Ok(assets.into_iter().collect())
    }

    /// The same source with its tensors as a recipe makes them, and what the writer of the recipe may want to know.
    ///
    /// `recipe` is a text or JSON, or the name of one that ships with Cairn (`shipped`). With `targets`, these tensors must come out.
    #[pyo3(signature = (recipe, *, shipped, reverse, settings, targets = None))]
    fn transformed(
        &self,
        py: Python,
        recipe: &str,
        shipped: bool,
        reverse: bool,
        settings: BTreeMap<String, String>,
        targets: Option<Vec<(String, Py<Spec>)>>,
    ) -> PyResult<(Self, Vec<String>)> {
        let asked = Asked {
            recipe,
            shipped,
            reverse,
            settings,
            targets: targets.map(|targets| {
                let specs = targets
                    .iter()
                    .map(|(name, spec)| (name.as_str(), &spec.get().0));
                wanted(recipe, specs)
            }),
        };
        let (made, warnings) = py.detach(|| transformed(self.shared(), &asked))?;
        let stored = self.stored.clone();
        let made = Some(made);
        Ok((Self { stored, made }, warnings))
    }

    /// Fills the memory of every slot; `refuse` names the problems that stop it: missing, unexpected, mismatched.
    ///
    /// With `scope`, names outside these prefixes do not count.
    /// `peers`: the number of this process, the ranks that load together, and a name that only this load has.
    #[pyo3(signature = (slots, refuse, *, scope = None, verify = true, threads = None, peers = None, progress = None))]
    #[expect(clippy::too_many_arguments, reason = "one call, named in Python")]
    fn load<'py>(
        &self,
        py: Python<'py>,
        mut slots: Vec<Slot>,
        refuse: Vec<String>,
        scope: Option<Vec<String>>,
        verify: bool,
        threads: Option<usize>,
        peers: Option<(usize, Vec<usize>, String)>,
        progress: Option<Py<Counter>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut options = LoadOptions {
            strictness: strictness(&refuse)?,
            verify,
            peers: peers.map(|(index, ranks, token)| Peers::new(index, ranks, token)),
            progress: progress.map_or_else(Arc::default, |counter| counter.get().0.clone()),
            ..LoadOptions::default()
        };
        if let Some(threads) = threads {
            options.threads = threads.max(1);
        }
        let mut targets = Vec::with_capacity(slots.len());
        for (name, spec, rank, array, strides) in &mut slots {
            let (spec, memory) = (&spec.get().0, bytes_mut(name, array)?);
            let target = match strides {
                None => Target::new(name, spec, *rank, memory),
                Some(strides) => Target::strided(name, spec, *rank, memory, strides),
            };
            targets.push(target.or_raise()?);
        }
        let source = self.source();
        let report = py.detach(|| match scope {
            Some(scope) => load(&Scope::new(source, scope), targets, &options),
            None => load(source, targets, &options),
        });
        let report = report.or_raise()?;
        report::loaded(py, &report)
    }

    /// What a load of these parts (name, placement, rank) would read, without reading it.
    #[pyo3(signature = (wanted, refuse, *, scope = None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<(String, Py<Spec>, usize)>,
        refuse: Vec<String>,
        scope: Option<Vec<String>>,
    ) -> PyResult<(Bound<'py, PyDict>, String)> {
        let strictness = strictness(&refuse)?;
        let wanted: Vec<Wanted> = wanted
            .iter()
            .map(|(name, spec, rank)| Wanted::new(name, &spec.get().0, *rank))
            .collect();
        let source = self.source();
        let plan = py.detach(|| match scope {
            Some(scope) => LoadPlan::new(&Scope::new(source, scope), &wanted, &strictness),
            None => LoadPlan::new(source, &wanted, &strictness),
        });
        let plan = plan.or_raise()?;
        let cost = report::cost(py, plan.cost(), plan.problems())?;
        Ok((cost, plan.to_string()))
    }

    /// Writes the named tensors into a Hugging Face folder and returns its data files.
    fn export_hf(
        &self,
        py: Python,
        url: &str,
        names: Vec<String>,
        shard_bytes: u64,
        memory_bytes: u64,
    ) -> PyResult<Vec<String>> {
        let store = cairn::store::open(url).or_raise()?;
        let options = RewriteOptions {
            memory_bytes,
            ..RewriteOptions::default()
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let source = self.source();
        let report = py.detach(|| export_hf(source, &store, &names, shard_bytes, &options));
        Ok(report.or_raise()?.files)
    }

    /// Writes the named tensors and all values into a folder that `torch.distributed.checkpoint` loads; returns its data files.
    fn export_dcp(
        &self,
        py: Python,
        url: &str,
        names: Vec<String>,
        shard_bytes: u64,
        memory_bytes: u64,
    ) -> PyResult<Vec<String>> {
        let store = cairn::store::open(url).or_raise()?;
        let options = RewriteOptions {
            memory_bytes,
            ..RewriteOptions::default()
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let contents = DcpContents {
            names: &names,
            values: self.plain_values(),
            shard_bytes,
        };
        let source = self.source();
        let report = py.detach(|| export_dcp(source, &store, contents, &options));
        Ok(report.or_raise()?.files)
    }
}

impl Source {
    pub(crate) fn checkpoint(checkpoint: Checkpoint) -> Self {
        let stored = Stored::Checkpoint(Arc::new(checkpoint));
        Self { stored, made: None }
    }

    pub(crate) fn model(model: ModelSource) -> Self {
        let stored = Stored::Model(Arc::new(model));
        Self { stored, made: None }
    }

    pub(crate) fn as_checkpoint(&self) -> Option<&Checkpoint> {
        match &self.stored {
            Stored::Checkpoint(checkpoint) => Some(checkpoint),
            Stored::Model(_) => None,
        }
    }

    /// The tensors, for whoever keeps them.
    fn shared(&self) -> SharedSource {
        match (&self.made, &self.stored) {
            (Some(made), _) => made.clone(),
            (None, Stored::Checkpoint(checkpoint)) => checkpoint.clone(),
            (None, Stored::Model(model)) => model.clone(),
        }
    }

    /// Loads targets.
    pub(crate) fn fill(&self, targets: Vec<Target>, options: &LoadOptions) -> PyResult<()> {
        load(self.source(), targets, options).map(|_| ()).or_raise()
    }

    pub(crate) fn plain_values(&self) -> &BTreeMap<String, serde_json::Value> {
        match &self.stored {
            Stored::Checkpoint(checkpoint) => checkpoint.values(),
            Stored::Model(model) => &model.model().values,
        }
    }

    fn source(&self) -> &(dyn cairn::checkpoint::Source + Send) {
        match (&self.made, &self.stored) {
            (Some(made), _) => made.as_ref(),
            (None, Stored::Checkpoint(checkpoint)) => checkpoint.as_ref(),
            (None, Stored::Model(model)) => model.as_ref(),
        }
    }
}

fn json(values: &BTreeMap<String, serde_json::Value>) -> String {
    serde_json::to_string(values).expect("values are JSON")
}

fn strictness(refuse: &[String]) -> PyResult<Strictness> {
    let mut strictness = Strictness::LENIENT;
    for kind in refuse {
        match kind.as_str() {
            "missing" => strictness.missing = OnProblem::Refuse,
            "unexpected" => strictness.unexpected = OnProblem::Refuse,
            "mismatched" => strictness.mismatched = OnProblem::Refuse,
            other => {
                let message = format!("`{other}` is not a kind of problem");
                let hint = "use `missing`, `unexpected`, `mismatched`";
                return Err(raise("StateError", &message, Some(hint.into()), None));
            }
        }
    }
    Ok(strictness)
}
