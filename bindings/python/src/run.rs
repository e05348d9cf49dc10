//! One rank's access to a run.

use crate::arguments::{seconds, values_of};
use crate::averaging::Averaging;
use crate::errors::{OrRaise, exception, raise};
use crate::keeper::find_keeper;
use crate::memory::Memory;
use crate::outline::Outline;
use crate::report;
use crate::retention::Policy;
use crate::saving::Saving;
use crate::source::Source;
use cairn::checkpoint::signing::{PublicKey, SecretKey, sign};
use cairn::checkpoint::{
    Checkpointer, IfCommitted, Options, Overlap, Pace, SaveOptions, StepState, Watch, World,
    survey, survey_signed,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Attempts that nobody has touched for this long are nobody's work in progress.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// The steps of one run, saved and opened by one rank.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Run {
    inner: Option<Checkpointer>,
    pace: Option<Arc<Pace>>,
    world: World,
    process: u32,
    require_key: Option<PublicKey>,
    has_keeper: bool,
}

#[pymethods]
impl Run {
    #[new]
    #[pyo3(signature = (url, rank, size, session, *, commit_timeout = None, takeover = None, staging_bytes = None,
        scratch_bytes = 0, overlap = "wait", queue = 1, read_twice = false, delta = false, compress = false,
        bytes_per_second = None, require_key = None, storage_options = None, keeper = None, keep_fast = None, upload_timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "one call, named in Python")]
    fn new(
        url: &str,
        rank: usize,
        size: usize,
        session: Option<String>,
        commit_timeout: Option<f64>,
        takeover: Option<f64>,
        staging_bytes: Option<u64>,
        scratch_bytes: u64,
        overlap: &str,
        queue: usize,
        read_twice: bool,
        delta: bool,
        compress: bool,
        bytes_per_second: Option<u64>,
        require_key: Option<&str>,
        storage_options: Option<BTreeMap<String, String>>,
        keeper: Option<&str>,
        keep_fast: Option<usize>,
        upload_timeout: Option<f64>,
    ) -> PyResult<Self> {
        let world = world_of(rank, size, session)?;
        let mut options = Options::default();
        if let Some(value) = commit_timeout {
            options.commit_timeout = seconds("commit_timeout", value)?;
        }
        if let Some(value) = takeover {
            options.takeover = seconds("takeover", value)?;
        }
        if let Some(value) = upload_timeout {
            options.upload_timeout = seconds("upload_timeout", value)?;
        }
        options.keep_fast = keep_fast;
        options.staging_bytes = staging_bytes;
        options.scratch_bytes = scratch_bytes;
        options.read_twice = read_twice;
        options.require_key = require_key
            .map(str::parse::<PublicKey>)
            .transpose()
            .or_raise()?;
        (options.delta, options.compress) = (delta, compress);
        options.overlap = match overlap {
            "skip" => Overlap::Skip,
            "queue" => Overlap::Queue(queue),
            _ => Overlap::Wait,
        };
        let pace = bytes_per_second.map(|rate| Arc::new(Pace::new(rate)));
        options.pace.clone_from(&pace);
        options.keeper = keeper.and_then(find_keeper);
        let storage_options: Vec<_> = storage_options.into_iter().flatten().collect();
        let store = cairn::store::open_with(url, &storage_options).or_raise()?;
        let (require_key, has_keeper) = (options.require_key, options.keeper.is_some());
        let inner = Checkpointer::with_options(store, world.clone(), options);
        Ok(Self {
            inner: Some(inner),
            pace,
            world,
            process: std::process::id(),
            require_key,
            has_keeper,
        })
    }

    /// The run's address.
    #[getter]
    fn url(&self) -> String {
        self.inner().store().url()
    }

    /// Whether what a keeper holds is laid over the run's store.
    #[getter]
    fn has_keeper(&self) -> bool {
        self.has_keeper
    }

    /// The launch's name.
    #[getter]
    fn session(&self) -> &str {
        self.world.session()
    }

    /// Captures the state and returns; writing and committing go on in the background.
    #[pyo3(signature = (step, outline, memory, values, rank_values, tags, *, streams, owners, watch = None, averaging = None, replace = false, assets = None))]
    #[expect(clippy::too_many_arguments, reason = "one call, named in Python")]
    fn save(
        &self,
        py: Python,
        step: u64,
        outline: &Outline,
        memory: &Memory,
        values: &str,
        rank_values: &str,
        tags: Vec<String>,
        streams: BTreeMap<usize, u64>,
        owners: Py<PyAny>,
        watch: Option<Py<PyAny>>,
        averaging: Option<&Averaging>,
        replace: bool,
        assets: Option<BTreeMap<String, Vec<u8>>>,
    ) -> PyResult<Saving> {
        self.check_process()?;
        let memory = memory.borrow(py, &streams, owners)?;
        let mut state = outline.state(&memory)?;
        if let Some(watch) = watch {
            state.watch(Watch::new(move || changed(&watch)));
        }
        if let Some(averaging) = averaging {
            averaging.add_to(&mut state)?;
        }
        for (name, value) in values_of(values)? {
            state.value(&name, value);
        }
        for (name, value) in values_of(rank_values)? {
            state.rank_value(&name, value);
        }
        let options = SaveOptions {
            tags,
            if_committed: match replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            assets: assets.unwrap_or_default(),
        };
        let saving = py.detach(|| self.inner().save(step, &state, &options));
        saving.or_raise().map(Saving)
    }

    /// Brings averages up to date in the background; whether any was due.
    #[pyo3(signature = (step, averaging, outline, memory, *, streams, owners, watch = None))]
    #[expect(clippy::too_many_arguments, reason = "one call, named in Python")]
    fn average(
        &self,
        py: Python,
        step: u64,
        averaging: &Averaging,
        outline: &Outline,
        memory: &Memory,
        streams: BTreeMap<usize, u64>,
        owners: Py<PyAny>,
        watch: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        self.check_process()?;
        let memory = memory.borrow(py, &streams, owners)?;
        let mut state = outline.state(&memory)?;
        if let Some(watch) = watch {
            state.watch(Watch::new(move || changed(&watch)));
        }
        let inner = averaging.inner();
        let update = py.detach(|| self.inner().average(step, &state, &inner));
        let update = update.or_raise()?;
        let begun = update.is_some();
        averaging.remember(update);
        Ok(begun)
    }

    /// Makes staging memory ready for states like this one.
    fn prepare(
        &self,
        py: Python,
        outline: &Outline,
        memory: &Memory,
        streams: BTreeMap<usize, u64>,
    ) -> PyResult<()> {
        self.check_process()?;
        let memory = memory.borrow(py, &streams, py.None())?;
        let state = outline.state(&memory)?;
        py.detach(|| self.inner().prepare(&state)).or_raise()
    }

    /// Frees memory that no save uses.
    fn release(&self, py: Python) {
        py.detach(|| self.inner().release());
    }

    /// The bytes of memory kept for file images.
    #[getter]
    fn staging_bytes(&self) -> u64 {
        self.inner().staging_bytes()
    }

    /// Tells how long a training step took, and whether anything was written meanwhile.
    fn observe(&self, seconds: f64, writing: bool) {
        if let (Some(pace), Ok(step)) = (&self.pace, Duration::try_from_secs_f64(seconds)) {
            pace.observe(step, writing);
        }
    }

    /// Begins to upload what earlier launches left on the fast tier only.
    fn resume_uploads(&self, py: Python) -> PyResult<()> {
        self.check_process()?;
        py.detach(|| self.inner().resume_uploads()).or_raise()
    }

    /// Waits until everything that is saved is on the durable tier.
    fn wait_uploads(&self, py: Python) -> PyResult<()> {
        let waited = py.detach(|| self.inner().wait_uploads());
        waited.map_err(|error| exception(&error))
    }

    /// Tells the other ranks that this one will not save `step`, so that they do not wait for it.
    fn give_up(&self, py: Python, step: u64, reason: &str) -> PyResult<()> {
        self.check_process()?;
        py.detach(|| self.inner().give_up(step, reason));
        Ok(())
    }

    /// The committed steps, ascending.
    fn steps(&self, py: Python) -> PyResult<Vec<u64>> {
        py.detach(|| self.inner().steps()).or_raise()
    }

    /// The newest committed step that is not one of those that were tried.
    fn newest_step(&self, py: Python, tried: Vec<u64>) -> PyResult<Option<u64>> {
        let tried = tried.into_iter().collect();
        py.detach(|| self.inner().newest_step(&tried)).or_raise()
    }

    /// Opens a committed step.
    fn open(&self, py: Python, step: u64) -> PyResult<Source> {
        let opened = py.detach(|| self.inner().open(step));
        Ok(Source::checkpoint(opened.or_raise()?))
    }

    /// Checks a step's structure, and about `fraction` of its bytes: what was looked at, and everything that is wrong.
    fn verify<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        fraction: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let looked = py.detach(|| {
            let store = self.inner().store();
            match &self.require_key {
                None => survey(store, step, fraction, &|_| {}),
                Some(key) => survey_signed(store, step, key, fraction, &|_| {}),
            }
        });
        let state = looked.or_raise()?;
        match state {
            StepState::Whole(_, report) | StepState::Damaged(_, report) => {
                report::verified(py, &report)
            }
            StepState::TooNew(error) => Err(error).or_raise(),
            StepState::Untrusted(error) => Err(error).or_raise(),
            StepState::Deleted => Err(cairn::checkpoint::Error::Deleted { step }).or_raise(),
            StepState::Incomplete(attempts) => {
                let reason = attempts.iter().map(|attempt| attempt.reason());
                let reason = reason.collect::<Vec<_>>().join("; ");
                Err(cairn::checkpoint::Error::Incomplete { step, reason }).or_raise()
            }
        }
    }

    /// Deletes the steps that no rule keeps and returns them; with `dry_run` only returns them.
    #[pyo3(signature = (policy, *, dry_run = false))]
    fn prune(&self, py: Python, policy: &Policy, dry_run: bool) -> PyResult<Vec<u64>> {
        let pruner = self.inner().pruner();
        let pruned = py.detach(|| {
            let plan = pruner.plan(&policy.0, Some(ABANDONED), SystemTime::now())?;
            let mut removed: Vec<u64> = plan.remove.keys().copied().collect();
            if !dry_run && !plan.is_empty() {
                let spared = pruner.prune(&plan)?;
                removed.retain(|step| !spared.contains(step));
            }
            Ok::<_, cairn::checkpoint::Error>(removed)
        });
        pruned.or_raise()
    }

    /// Signs a committed step; returns the public key.
    fn sign(&self, py: Python, step: u64, secret_key: &str) -> PyResult<String> {
        let signed = py.detach(|| {
            let key: SecretKey = secret_key.parse()?;
            sign(&self.inner().open(step)?, &key, &|_| ())
        });
        Ok(signed.or_raise()?.key.to_string())
    }

    /// Gives a committed step a tag, or takes it off.
    fn tag(&self, py: Python, step: u64, name: &str, set: bool) -> PyResult<()> {
        let tagged = py.detach(|| match set {
            true => self.inner().tag(step, name),
            false => self.inner().untag(step, name),
        });
        tagged.or_raise()
    }

    /// The tags of a committed step.
    fn tags(&self, py: Python, step: u64) -> PyResult<Vec<String>> {
        py.detach(|| self.inner().tags(step)).or_raise()
    }
}

impl Run {
    fn inner(&self) -> &Checkpointer {
        self.inner.as_ref().expect("only `drop` takes it")
    }

    /// The threads of a run do not survive a fork, so a child may not save through its parent's.
    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let message = "this Checkpointer belongs to the process that made it, and this is a fork of that process";
        let hint = "make a new Checkpointer in the child";
        Err(raise("StateError", message, Some(hint.into()), None))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if self.process != std::process::id() {
            // In a forked child there is no thread to wait for, and waiting would never end.
            std::mem::forget(inner);
            return;
        }
        // Dropping waits for the save in the background, which must not keep other threads of Python waiting.
        let mut inner = Some(inner);
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}

/// The names of tensors that were changed, as Python tells them. A watch that fails counts as a change.
fn changed(watch: &Py<PyAny>) -> Vec<String> {
    let asked = Python::try_attach(|py| watch.call0(py)?.extract::<Vec<String>>(py));
    match asked {
        None => Vec::new(),
        Some(Ok(names)) => names,
        Some(Err(error)) => vec![format!("the check for changes failed: {error}")],
    }
}

/// A rank among `size`, which save together under the name of a session.
fn world_of(rank: usize, size: usize, session: Option<String>) -> PyResult<World> {
    let world = match session {
        Some(session) => World::new(rank, size, session),
        None if size == 1 => Some(World::single()),
        None => None,
    };
    world.ok_or_else(|| {
        let message = format!("rank {rank} of {size} without a session is not a world");
        let hint = "ranks count from 0, and ranks that save together need a common session name";
        raise("StateError", &message, Some(hint.into()), None)
    })
}
