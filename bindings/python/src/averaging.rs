//! Running averages of a rank's tensors.

use crate::errors::{OrRaise, exception, raise};
use crate::outline::Outline;
use crate::saving::named_streams;
use crate::source::Source;
use cairn::checkpoint::ema::{Ema, OnChange};
use cairn::checkpoint::{LoadOptions, State, Strictness, Update, World};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Averages, and the update of them that goes on.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Averaging {
    inner: Mutex<Arc<cairn::checkpoint::Averaging>>,
    last: Mutex<Option<Update>>,
}

#[pymethods]
impl Averaging {
    /// Averages by these definitions (as JSON) of tensors of the outline: the name of each average, and that of its tensor.
    #[new]
    fn new(
        rank: usize,
        size: usize,
        outline: &Outline,
        definitions: Vec<String>,
        of: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let read = |text: &String| serde_json::from_str::<Ema>(text);
        let definitions: Result<Vec<Ema>, _> = definitions.iter().map(read).collect();
        let definitions = definitions
            .map_err(|error| raise("StateError", &format!("an average {error}"), None, None))?;
        let world = World::new(rank, size, "averages").unwrap_or_else(World::single);
        let made = cairn::checkpoint::Averaging::new(&world, outline.inner(), definitions, &of);
        Ok(Self {
            inner: Mutex::new(Arc::new(made.or_raise()?)),
            last: Mutex::default(),
        })
    }

    /// Goes on from the averages of a checkpoint. Returns the labels that start anew; without `restart`, one that would is an error.
    fn resume(&self, py: Python, source: &Source, restart: bool) -> PyResult<Vec<String>> {
        let on_change = match restart {
            true => OnChange::StartAnew,
            false => OnChange::Refuse,
        };
        py.detach(|| {
            let mut inner = lock(&self.inner);
            let averages = Arc::get_mut(&mut inner).and_then(|inner| inner.averages_mut());
            let Some(averages) = averages else {
                let message = "the averages are in use, so that nothing can be loaded into them";
                return Err(raise("StateError", message, None, None));
            };
            let anew = averages
                .resume(source.plain_values(), on_change)
                .or_raise()?;
            let options = LoadOptions {
                strictness: Strictness::PARTIAL,
                ..LoadOptions::default()
            };
            source.fill(averages.targets().or_raise()?, &options)?;
            Ok(anew)
        })
    }

    /// Goes on with states of another outline, in which the averaged tensors are the same.
    fn move_to(&self, outline: &Outline) -> PyResult<()> {
        let moved = self.inner().moved(outline.inner()).or_raise()?;
        *lock(&self.inner) = Arc::new(moved);
        Ok(())
    }

    /// Waits until the state may change, as a save's fence.
    #[pyo3(signature = (streams, turn = None))]
    fn fence(
        &self,
        py: Python,
        streams: BTreeMap<usize, u64>,
        turn: Option<u32>,
    ) -> PyResult<(f64, Option<String>)> {
        let Some(update) = self.update() else {
            return Ok((0.0, None));
        };
        let streams = named_streams(streams);
        let fenced = py.detach(|| match turn {
            Some(turn) => update.fence_turn(turn, &streams),
            None => update.fence(&streams),
        });
        let fenced = fenced.or_raise()?;
        Ok((fenced.waited.as_secs_f64(), fenced.reason))
    }

    /// Waits until the averages are up to date.
    fn wait(&self, py: Python) -> PyResult<()> {
        match self.update() {
            None => Ok(()),
            Some(update) => py
                .detach(|| update.wait())
                .map_err(|error| exception(&error)),
        }
    }

    /// Where the time of the last update went, as JSON.
    fn timeline(&self) -> Option<String> {
        self.update().map(|update| update.timeline().to_json())
    }
}

impl Averaging {
    pub(crate) fn inner(&self) -> Arc<cairn::checkpoint::Averaging> {
        lock(&self.inner).clone()
    }

    pub(crate) fn remember(&self, update: Option<Update>) {
        *lock(&self.last) = update;
    }

    /// Adds the averages to a state, as they are after the last update.
    pub(crate) fn add_to(&self, state: &mut State) -> PyResult<()> {
        self.inner().add_to(state, self.update()).or_raise()
    }

    fn update(&self) -> Option<Update> {
        lock(&self.last).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
