//! Saves and loads the steps of one run.

mod attempts;
mod course;
mod keeping;
mod reading;
mod tiers;

pub(crate) use course::Origin;
pub use reading::Latest;

use crate::Error;
use crate::averaging::{Averaging, Update};
use crate::capture::{Gate, Lanes, Means, Mode, ScratchCache, Turns};
use crate::commit::Attempt;
use crate::copies::near;
use crate::delta::Bases;
use crate::options::{Options, Overlap};
use crate::outcome::stopped;
use crate::pool::Pool;
use crate::save::{Job, PreparedSave, SaveOptions, capture};
use crate::retention::Pruner;
use crate::saving::{Level, Progress, Saving};
use crate::stale::History;
use crate::state::State;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, PoisonError};
use crate::timeline::{Lane, Recorder};
use crate::upload::Uploader;
use crate::world::World;
use cairn_store::Store;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// One rank's access to a run: saves in the background, opens and loads what is committed.
///
/// ```
/// use cairn_checkpoint::{Checkpointer, LoadOptions, SaveOptions, State, Target, World};
/// use cairn_sharding::{Mesh, TensorSpec};
/// use std::sync::Arc;
///
/// let store = Arc::new(cairn_store::Memory::new());
/// let run = Checkpointer::new(store, World::single());
/// let spec = TensorSpec::parse(&Mesh::single(), "u8[4]")?;
///
/// let weights = [1, 2, 3, 4];
/// let mut state = State::new(0);
/// state.tensor("weights", &spec, &weights)?;
/// let saving = run.save(10, &state, &SaveOptions::default())?;   // the state may change again
/// saving.wait()?;                                                // step 10 is safe
///
/// let mut loaded = [0; 4];
/// let checkpoint = run.latest()?.checkpoint;
/// checkpoint.load(vec![Target::new("weights", &spec, 0, &mut loaded)?], &LoadOptions::default())?;
/// assert_eq!(loaded, weights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpointer {
    store: Arc<dyn Store>,
    /// Where saves are written: the fast tier, or the only store.
    near: Arc<dyn Store>,
    /// Brings what is saved to the durable tier, if there are tiers.
    uploader: Option<Uploader>,
    world: World,
    options: Options,
    pool: Arc<Pool>,
    scratch: Arc<ScratchCache>,
    history: Arc<History>,
    /// What the next save may refer to.
    bases: Arc<Bases>,
    /// Averages have memory of their own, because a save may wait for them.
    average_pool: Arc<Pool>,
    average_scratch: Arc<ScratchCache>,
    updating: Mutex<Option<Update>>,
    pruner: Arc<Pruner>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    plan: Option<Arc<PreparedSave>>,
    /// How often each step was started: the next attempt at it needs another name.
    started: HashMap<u64, u64>,
    /// Saves that are being written, the oldest first.
    current: VecDeque<(Saving, JoinHandle<()>)>,
    course: course::Course,
}

impl Checkpointer {
    /// Access to the run that `store` is rooted at.
    pub fn new(store: Arc<dyn Store>, world: World) -> Self {
        Self::with_options(store, world, Options::default())
    }

    /// As [`Checkpointer::new`], with everything chosen.
    pub fn with_options(store: Arc<dyn Store>, world: World, options: Options) -> Self {
        let bases = Arc::default();
        Self {
            near: near(&store).clone(),
            uploader: tiers::uploader(&store, &world, &options, &bases),
            pool: Arc::new(Pool::new(options.staging_bytes)),
            scratch: Arc::default(),
            history: Arc::default(),
            bases,
            average_pool: Arc::new(Pool::new(options.staging_bytes)),
            average_scratch: Arc::default(),
            updating: Mutex::default(),
            pruner: Arc::new(Pruner::new(store.clone())),
            store,
            world,
            options,
            inner: Mutex::default(),
        }
    }

    /// Saves `state` as `step`. Returns when what is only borrowed is captured; the rest, writing and committing go on in the background.
    ///
    /// If the save before is still being written, [`Options::overlap`] says what happens.
    ///
    /// A step that is not the next one of the newest line begins a new line: see [`Checkpointer::resumed_from`].
    ///
    /// # Collective
    /// Every rank of the world saves the same steps in the same order. No rank waits for another here, but for the first save of ranks that
    /// only share a session name ([`World::new`]): they agree on an identifier of their launch.
    ///
    /// # Crash safety
    /// Until the step is committed, readers see the steps before it and nothing of this one.
    ///
    /// # Errors
    /// If the step is committed already, or the state does not hold together. [`Error::PreviousSave`] if a save before failed and nobody
    /// looked, and [`Error::NotUploaded`] of an upload: nothing of this step was begun, so call again to save it, or
    /// [`give_up`](Self::give_up), which the other ranks wait for.
    pub fn save(&self, step: u64, state: &State, options: &SaveOptions) -> Result<Saving, Error> {
        let started = Instant::now();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = self.make_way(&mut inner)?;
        let mut attempt = self.attempt(&mut inner, step, options)?;
        let looked = self.look_at_uploads(&attempt);
        if let Err(error @ Error::NotUploaded { .. }) = looked {
            return Err(error);
        }
        // Counted even if refused: all ranks must give the next attempt the same name.
        *inner.started.entry(step).or_default() += 1;
        looked.inspect_err(|error| self.report_failure(&attempt, error))?;
        if let Some(busy) = busy {
            let reason = format!("step {busy} is still being written");
            let error = Error::Skipped { step, reason };
            self.report_failure(&attempt, &error);
            return Ok(Saving::ended(step, error));
        }
        let charted = self.chart(&mut inner, &mut attempt);
        let origin = charted.inspect_err(|error| self.report_failure(&attempt, error))?;
        let refused = self.refuse_committed(&attempt);
        refused.inspect_err(|error| self.report_failure(&attempt, error))?;
        let captured = self.capture(&mut inner, (attempt, origin), state, options, started);
        let (saving, thread) = captured?;
        inner.current.push_back((saving.clone(), thread));
        self.upload_behind(&saving);
        Ok(saving.with_stall(started.elapsed()))
    }

    /// Lets saves before this one end as far as this one has to wait for them, or names one that is in the way.
    fn make_way(&self, inner: &mut Inner) -> Result<Option<u64>, Error> {
        let most = match self.options.overlap {
            Overlap::Wait | Overlap::Skip => 0,
            Overlap::Queue(most) => most,
        };
        while let Some((saving, _)) = inner.current.front() {
            if !saving.has_settled(Level::Local) && inner.current.len() <= most {
                // Scratch memory is one save's at a time.
                inner
                    .current
                    .iter()
                    .for_each(|(saving, _)| saving.wait_captured());
                return Ok(None);
            }
            if !saving.has_settled(Level::Local) && self.options.overlap == Overlap::Skip {
                return Ok(Some(saving.step()));
            }
            let (saving, thread) = inner.current.pop_front().expect("just looked at");
            let failure = saving.unseen_failure();
            // The result is in the handle; the thread has nothing left to say.
            let _ = thread.join();
            if let Some(report) = saving.outcome() {
                inner.course.committed(report.step, &report.attempt);
            }
            if let Some(source) = failure {
                let step = saving.step();
                return Err(Error::PreviousSave { step, source });
            }
        }
        Ok(None)
    }

    /// Brings running averages up to date with `state` in the background; `None` if none is due at `step`. Waits for the update before.
    ///
    /// Memory that is fenced may not change before [`Update::fence`].
    ///
    /// # Errors
    /// If the state is not the one the averages were made for, or the update before failed.
    pub fn average(
        &self,
        step: u64,
        state: &State,
        averaging: &Arc<Averaging>,
    ) -> Result<Option<Update>, Error> {
        if !averaging.fits(&state.outline) {
            return Err(Error::State {
                name: "the state".into(),
                reason: "has other tensors than the one its averages were made for".into(),
            });
        }
        let mut last = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = last.take() {
            before
                .wait()
                .map_err(|source| Error::PreviousSave { step, source })?;
        }
        let means = Means {
            pool: &self.average_pool,
            scratch: &self.average_scratch,
            gate: Arc::new(Gate::new(state.watch.clone(), Turns::of(state))),
            recorder: Recorder::new(),
            mode: Mode {
                scratch_bytes: 0,
                ..self.mode()
            },
        };
        last.clone_from(&Update::begin(averaging, step, state, means)?);
        Ok(last.clone())
    }

    /// Makes staging memory ready for states like this one, so that the first save is as quick as the others.
    ///
    /// # Errors
    /// If there is no memory, or the state does not hold together.
    pub fn prepare(&self, state: &State) -> Result<(), Error> {
        let plan = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            self.plan(&mut inner, state)?
        };
        let lanes = Lanes::follow(&state.memory)?;
        for device in lanes.devices() {
            self.pool.pin_for(device);
            device
                .warm_up()
                .map_err(|source| Error::Capture { source })?;
        }
        if let Some(picture) = &plan.picture {
            let budget = self.options.scratch_bytes;
            self.scratch
                .reserve(&picture.copies, &state.memory, &lanes, budget);
        }
        if self.prepare_kept(&plan, state) {
            return Ok(());
        }
        let len = plan.writer.image.as_ref().map_or(0, |image| image.len);
        self.pool.prepare(len)
    }

    /// Frees staging and scratch memory that no save uses. The next save takes it anew.
    pub fn release(&self) {
        self.pool.release();
        self.scratch.release();
        self.average_pool.release();
        self.average_scratch.release();
    }

    /// Captures the state and starts the background; a failure here is told to the other writers, too.
    fn capture(
        &self,
        inner: &mut Inner,
        (attempt, origin): (Attempt, Origin),
        state: &State,
        options: &SaveOptions,
        started: Instant,
    ) -> Result<(Saving, JoinHandle<()>), Error> {
        let report = |error: &Error| self.report_failure(&attempt, error);
        let begun = Instant::now();
        state.check_values().inspect_err(report)?;
        let plan = self.plan(inner, state).inspect_err(report)?;
        let planning = begun.elapsed();
        let recorder = Recorder::since(started);
        recorder.add(Lane::Plan, begun, begun + planning, 0);
        let progress = Arc::new(Progress::default());
        let total = plan.writer.image.as_ref().map_or(0, |image| image.len);
        progress.total.store(total, Ordering::Relaxed);
        let gate = Arc::new(Gate::new(state.watch.clone(), Turns::of(state)));
        let (kept, pool) = self.room(&attempt, &plan, state);
        let job = Job {
            store: self.near.clone(),
            board: self.board().clone(),
            world: self.world.clone(),
            attempt: attempt.clone(),
            origin,
            plan,
            planning,
            options: options.clone(),
            values: state.values.clone(),
            rank_values: state.rank_values.clone(),
            progress: progress.clone(),
            gate: gate.clone(),
            recorder: recorder.clone(),
            pool: pool.clone(),
            pace: self.options.pace.clone(),
            kept,
            history: self.history.clone(),
            bases: self.options.delta.then(|| self.bases.clone()),
            compress: self.options.compress,
            patience: self.patience(),
            clock: self.options.clock.clone(),
            started,
        };
        let means = Means {
            pool: &pool,
            scratch: &self.scratch,
            gate: gate.clone(),
            recorder: recorder.clone(),
            mode: self.mode(),
        };
        let flow = capture(&job, state, means).inspect_err(report)?;
        // Told now, because a small save may have told where its time went before this call is over.
        recorder.add(Lane::Stall, started, Instant::now(), 0);
        let saving = Saving::new(attempt.step, planning, progress, gate, recorder);
        let saving = saving.with_upload(self.upload_of(&attempt, started));
        let handle = saving.clone();
        let thread = thread::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| job.run(flow)));
            handle.finish(outcome.unwrap_or_else(|panic| Err(stopped(panic.as_ref()))));
        });
        Ok((saving, thread))
    }

    fn mode(&self) -> Mode {
        Mode {
            threads: self.options.capture_threads,
            scratch_bytes: self.options.scratch_bytes,
            read_twice: self.options.read_twice,
        }
    }

    /// This rank's plan for the state, reused while its tensors are the same and lie in memory of their own or not as before.
    fn plan(&self, inner: &mut Inner, state: &State) -> Result<Arc<PreparedSave>, Error> {
        if state.rank() != self.world.rank() {
            return Err(Error::State {
                name: format!("the state of rank {}", state.rank()),
                reason: format!("was given to rank {}", self.world.rank()),
            });
        }
        let aliases = state.aliases();
        if let Some(plan) = &inner.plan
            && plan.fits(&state.outline, &aliases)
        {
            return Ok(plan.clone());
        }
        let plan = PreparedSave::new(state.outline(), aliases, &self.world)?;
        let plan = Arc::new(plan);
        inner.plan = Some(plan.clone());
        Ok(plan)
    }

    /// What prunes this run. It remembers what it has read: one that prunes after each save reads the new step alone.
    pub fn pruner(&self) -> &Arc<Pruner> {
        &self.pruner
    }

    /// The store this run lies in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The bytes of memory kept for file images.
    pub fn staging_bytes(&self) -> u64 {
        self.pool.len_bytes()
    }

    /// Waits for the saves in the background, and until everything is on the durable tier if there is one.
    ///
    /// # Errors
    /// Whatever stopped it.
    pub fn wait(&self) -> Result<(), Arc<Error>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for (saving, _) in &inner.current {
            saving.wait()?;
        }
        self.wait_uploads()
    }
}

impl Drop for Checkpointer {
    /// Leaving a run waits for what goes on in the background: what was started is finished.
    fn drop(&mut self) {
        let updating = self.updating.get_mut();
        if let Some(update) = updating.unwrap_or_else(PoisonError::into_inner) {
            let _ = update.wait();
        }
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, thread) in inner.current.drain(..) {
            let _ = thread.join();
        }
    }
}
