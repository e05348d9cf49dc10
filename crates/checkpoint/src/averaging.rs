//! Running averages of a rank's tensors, brought up to date in the background from captured copies.

use crate::Error;
use crate::assign::WriterItems;
use crate::bytes::{Bytes, Promise};
use crate::capture::{Copies, Fenced, Flow, Gate, Means, Picture};
use crate::ema::{Averaged, Averages, Ema};
use crate::image::Image;
use crate::layout::{Layout, own_spec};
use crate::outcome::Outcome;
use crate::pool::Pool;
use crate::state::{Outline, State};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, Receiver, thread};
use crate::timeline::{Lane, Recorder};
use crate::world::World;
use crate::writer::{Chunk, Sink, Written};
use cairn_device::{Memory, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Running averages of a rank, and where in its states they come from.
///
/// Ranks that hold the same tensor share its average: each averages what it would write of it.
#[derive(Debug)]
pub struct Averaging {
    averages: Arc<Averages>,
    picture: Arc<Picture>,
    /// Name of an average → name of its tensor.
    of: BTreeMap<String, String>,
    loans: Arc<Loans>,
}

/// Saves that the averages were promised to, counted, and those that have got them.
#[derive(Debug, Default)]
struct Loans {
    counts: Mutex<(usize, usize)>,
    settled: Condvar,
}

impl Averaging {
    /// Averages, under the names `of` gives them, of tensors of states with this outline.
    ///
    /// # Errors
    /// If a tensor is not in the outline, or a definition makes no sense.
    pub fn new(
        world: &World,
        outline: &Arc<Outline>,
        definitions: Vec<Ema>,
        of: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let mut specs = BTreeMap::new();
        for (name, source) in of {
            let index = outline.find(source).ok_or_else(|| Error::State {
                name: source.clone(),
                reason: "is to be averaged, but the state has no such tensor".into(),
            })?;
            let spec = &outline.tensors[index].spec;
            specs.insert(name.clone(), own_spec(spec, world.rank()));
        }
        let layout = Arc::new(Layout::new(specs, BTreeMap::new()));
        let items = WriterItems::new(&layout, world.rank())?;
        let mut tensors: BTreeMap<usize, Averaged> = BTreeMap::new();
        for item in items.items.iter().filter(|item| item.len_bytes > 0) {
            let averaged = tensors.entry(item.tensor).or_insert_with(|| Averaged {
                name: layout.name(item.tensor).to_string(),
                spec: layout.spec(item.tensor).clone(),
                pieces: Vec::new(),
            });
            averaged.pieces.push(item.piece.clone());
        }
        let averages = Averages::new(world.rank(), definitions, tensors.into_values().collect())?;
        Ok(Self {
            picture: Arc::new(picture(&averages, outline, of)?),
            averages: Arc::new(averages),
            of: of.clone(),
            loans: Arc::default(),
        })
    }

    /// The same averages for states with another outline, in which their tensors are the same.
    ///
    /// # Errors
    /// If one of them is missing, or is another.
    pub fn moved(&self, outline: &Arc<Outline>) -> Result<Self, Error> {
        let spec = |outline: &Outline, source: &str| {
            let index = outline.find(source)?;
            Some(outline.tensors[index].spec.clone())
        };
        for source in self.of.values() {
            if spec(outline, source) != spec(&self.picture.outline, source) {
                return Err(Error::State {
                    name: source.clone(),
                    reason: "is averaged, but is not what it was when its averages were made"
                        .into(),
                });
            }
        }
        Ok(Self {
            picture: Arc::new(picture(&self.averages, outline, &self.of)?),
            averages: self.averages.clone(),
            of: self.of.clone(),
            loans: self.loans.clone(),
        })
    }

    /// The averages themselves, to look at or to load.
    pub fn averages(&self) -> &Averages {
        &self.averages
    }

    /// The averages, to be loaded into, unless somebody uses them.
    pub fn averages_mut(&mut self) -> Option<&mut Averages> {
        Arc::get_mut(&mut self.averages)
    }

    /// Adds the averages to a state as they will be when `update` is over: their memory is captured then.
    ///
    /// # Errors
    /// If the state has one of the names already.
    pub fn add_to(
        self: &Arc<Self>,
        state: &mut State,
        update: Option<Update>,
    ) -> Result<(), Error> {
        let mut promises = Vec::new();
        for (name, spec, len) in self.averages.stored() {
            let promise = Promise::new(len);
            state.bytes(&name, spec, Bytes::Promised(promise.clone()))?;
            promises.push((name, promise));
        }
        let step = update.as_ref().map(|update| update.step);
        for (name, value) in self.averages.values(step) {
            state.value(&name, value);
        }
        self.loans.begin();
        let averaging = self.clone();
        thread::spawn(move || averaging.keep(promises, update));
        Ok(())
    }

    /// Keeps promises of memory when an update is over.
    fn keep(&self, promises: Vec<(String, Promise)>, update: Option<Update>) {
        let failed = update.and_then(|update| update.wait().err());
        let lent = match failed {
            Some(error) => Err(error.to_string()),
            None => self.averages.lend().map_err(|error| error.to_string()),
        };
        for (name, promise) in promises {
            let memory = lent.as_ref().map_err(Clone::clone);
            promise.keep(memory.map(|lent| Memory::bytes(lent[&name].clone())));
        }
        self.loans.end();
    }

    /// Whether they belong to states with this outline.
    pub fn fits(&self, outline: &Arc<Outline>) -> bool {
        Arc::ptr_eq(&self.picture.outline, outline) || self.picture.outline == *outline
    }
}

impl Loans {
    fn begin(&self) {
        lock(&self.counts).0 += 1;
    }

    fn end(&self) {
        lock(&self.counts).1 += 1;
        self.settled.notify_all();
    }

    /// How many were promised so far.
    fn begun(&self) -> usize {
        lock(&self.counts).0
    }

    /// Waits until so many saves have what they were promised: an update must not overtake those before it. Those after it wait for it
    /// themselves.
    fn wait(&self, begun: usize) {
        let mut counts = lock(&self.counts);
        while counts.1 < begun {
            let waited = self.settled.wait(counts);
            counts = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The source of the averages as an image of the state.
fn picture(
    averages: &Averages,
    outline: &Arc<Outline>,
    of: &BTreeMap<String, String>,
) -> Result<Picture, Error> {
    let mut copies = Copies::default();
    for (name, piece, begin) in averages.sources() {
        let tensor = outline.find(&of[name]).expect("looked up before");
        let len = outline.tensors[tensor]
            .spec
            .dtype()
            .len_bytes(piece.element_count());
        let len = len.expect("averaged types fill whole bytes") as u64;
        copies.add(outline, tensor, piece, begin..begin + len)?;
    }
    Ok(Picture {
        image: Image::bare(averages.source_len_bytes()),
        copies,
        outline: outline.clone(),
    })
}

/// An update of averages in the background.
#[derive(Debug, Clone)]
pub struct Update {
    step: u64,
    gate: Arc<Gate>,
    outcome: Arc<Outcome<()>>,
    recorder: Recorder,
}

impl Update {
    /// Begins the update of `step`, and promises its outcome; `None` if no average is due.
    pub(crate) fn begin(
        averaging: &Arc<Averaging>,
        step: u64,
        state: &State,
        means: Means,
    ) -> Result<Option<Self>, Error> {
        if !averaging.averages.is_due(step) {
            return Ok(None);
        }
        let recorder = means.recorder.clone();
        let update = Self {
            step,
            gate: means.gate.clone(),
            outcome: Arc::default(),
            recorder: recorder.clone(),
        };
        let (shared, pool, threads) = (averaging.clone(), means.pool.clone(), means.mode.threads);
        let promised = averaging.loans.begun();
        let sink = Sink::start(pool.clone(), move |chunks| {
            shared.loans.wait(promised);
            absorb(&shared, step, chunks, &pool, threads, &recorder)
        });
        let flow = Flow::begin(averaging.picture.clone(), &state.memory, sink, means)?;
        let handle = update.clone();
        thread::spawn(move || {
            let done = flow.finish().and_then(|draining| draining.finish());
            handle.outcome.set(done.map(|_| ()));
        });
        Ok(Some(update))
    }

    /// Waits until the averages are up to date.
    ///
    /// # Errors
    /// Whatever stopped it. The averages are a mixture then, and have to be loaded again.
    pub fn wait(&self) -> Result<(), Arc<Error>> {
        self.outcome.wait()
    }

    /// Whether it is over, well or not.
    pub fn is_done(&self) -> bool {
        self.outcome.is_set()
    }

    /// As [`Saving::fence`](crate::Saving::fence).
    ///
    /// # Errors
    /// If a device fails.
    pub fn fence(&self, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        self.pass(None, streams)
    }

    /// As [`Saving::fence_turn`](crate::Saving::fence_turn).
    ///
    /// # Errors
    /// If a device fails.
    pub fn fence_turn(&self, turn: u32, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        self.pass(Some(turn), streams)
    }

    fn pass(&self, turn: Option<u32>, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        match self.gate.is_captured() {
            true => Ok(Fenced::default()),
            false => self.gate.fence(turn, streams),
        }
    }

    /// Where its time went.
    pub fn timeline(&self) -> crate::Timeline {
        self.recorder.timeline()
    }
}

/// Shows the averages every chunk that comes, on several threads.
fn absorb(
    averaging: &Averaging,
    step: u64,
    chunks: Receiver<Chunk>,
    pool: &Pool,
    threads: usize,
    recorder: &Recorder,
) -> Result<Written, Error> {
    let averages = &averaging.averages;
    let begun = averages.begin_update(step);
    let failure: Mutex<Option<Error>> = Mutex::new(begun.err());
    let chunks = Mutex::new(chunks);
    let next = || lock(&chunks).recv().ok();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                cairn_device::yield_to_others();
                while let Some(chunk) = next() {
                    let (offset, bytes) = chunk.parts();
                    let span = recorder.span(Lane::Average).bytes(bytes.len() as u64);
                    if lock(&failure).is_none()
                        && let Err(error) = averages.absorb(offset, bytes)
                    {
                        lock(&failure).get_or_insert(error);
                    }
                    drop(span);
                    pool.give(chunk.into_buffer());
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => averages.finish_update().map(|()| Written::default()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
