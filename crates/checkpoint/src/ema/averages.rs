//! The averages that one rank keeps while it trains.

use super::definition::Ema;
use super::segments::{Memories, Update, reclaim, split_to, unsplit};
use super::source::{Averaged, Segment, Tensor, aligned, check_names, cut, is_averaged};
use crate::Error;
use cairn_sharding::Piece;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The running averages of one rank: all labels, updated in one pass over the weights.
///
/// The pieces to average lie one after another in an imagined source of [`source_len_bytes`](Self::source_len_bytes) bytes
/// ([`sources`](Self::sources) says where each begins). An update shows it all of that source once, in any order and from any number
/// of threads:
///
/// ```
/// use cairn_checkpoint::ema::{Averaged, Averages, Ema};
/// use cairn_sharding::{Mesh, Piece, Region, TensorSpec};
/// let spec = TensorSpec::parse(&Mesh::single(), "f32[2]")?;
/// let pieces = vec![Piece::whole(Region::whole(&[2]))];
/// let tensors = vec![Averaged { name: "w".into(), spec, pieces }];
/// let averages = Averages::new(0, vec![Ema::exponential(0.5)], tensors)?;
/// for (step, weights) in [(1, [1.0_f32, 2.0]), (2, [3.0, 2.0])] {
///     if averages.begin_update(step)? {
///         averages.absorb(0, &weights[0].to_le_bytes())?;
///         averages.absorb(4, &weights[1].to_le_bytes())?;
///         averages.finish_update()?;
///     }
/// }
/// let view = averages.view()?;
/// let (name, _, bytes) = &view.tensors()[0];
/// assert_eq!((name.as_str(), &bytes[..4]), ("ema/0.5/w", &2.0_f32.to_le_bytes()[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Averages {
    pub(super) rank: usize,
    pub(super) definitions: Vec<Ema>,
    pub(super) tensors: Vec<Tensor>,
    segments: Vec<Segment>,
    source_len_bytes: u64,
    pub(super) inner: RwLock<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) progress: Vec<Progress>,
    pub(super) phase: Phase,
}

/// How far an average has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) updates: u64,
    pub(super) last_step: Option<u64>,
}

impl Progress {
    pub(super) fn is_due(&self, ema: &Ema, step: u64) -> bool {
        step.is_multiple_of(ema.every) && self.last_step.is_none_or(|last| last < step)
    }

    /// What it is after the update of `step`.
    pub(super) fn after(&self, ema: &Ema, step: u64) -> Self {
        match self.is_due(ema, step) {
            false => *self,
            true => Self {
                updates: self.updates + 1,
                last_step: Some(step),
            },
        }
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The averages of each tensor, in one piece.
    Resting(Vec<Memories>),
    Updating(Update),
}

impl Averages {
    /// The averages `definitions` of `tensors` on `rank`, before their first update.
    ///
    /// Tensors that no definition includes, and those whose type is not averaged, are passed over.
    ///
    /// # Errors
    /// If a definition makes no sense, a label or a name is given twice, or pieces do not fit their tensor.
    pub fn new(rank: usize, definitions: Vec<Ema>, tensors: Vec<Averaged>) -> Result<Self, Error> {
        check_definitions(&definitions)?;
        let is_wanted = |tensor: &Averaged| {
            is_averaged(tensor.spec.dtype())
                && definitions.iter().any(|ema| ema.includes(&tensor.name))
        };
        let wanted = tensors.into_iter().filter(is_wanted);
        let tensors: Vec<Tensor> = wanted
            .map(|tensor| Tensor::new(rank, tensor))
            .collect::<Result<_, _>>()?;
        check_names(&tensors)?;
        let (segments, source_len_bytes) = cut(&tensors);
        let memories = tensors.iter().map(|tensor| tensor.zeros(&definitions));
        let inner = Inner {
            progress: vec![Progress::default(); definitions.len()],
            phase: Phase::Resting(memories.collect()),
        };
        Ok(Self {
            rank,
            inner: RwLock::new(inner),
            definitions,
            segments,
            tensors,
            source_len_bytes,
        })
    }

    /// The definitions, in order.
    pub fn definitions(&self) -> &[Ema] {
        &self.definitions
    }

    /// The length of the source that each update sees.
    pub fn source_len_bytes(&self) -> u64 {
        self.source_len_bytes
    }

    /// Every piece of the source: the tensor's name, which elements, and its first byte.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &Piece, u64)> {
        let pieces = self.tensors.iter().flat_map(|tensor| {
            let first = |index| {
                if index == 0 {
                    aligned
                } else {
                    |position| position
                }
            };
            let pieces = tensor.pieces.iter().enumerate();
            pieces.map(move |(index, piece)| (tensor, piece, first(index)))
        });
        pieces.scan(0, |position, (tensor, piece, placed)| {
            let begin = placed(*position);
            *position = begin;
            *position += (piece.element_count() * tensor.element_bytes()) as u64;
            Some((tensor.name.as_str(), piece, begin))
        })
    }

    /// Whether any average absorbs `step`.
    pub fn is_due(&self, step: u64) -> bool {
        let inner = self.read();
        let mut known = self.definitions.iter().zip(&inner.progress);
        known.any(|(ema, progress)| progress.is_due(ema, step))
    }

    /// Begins the update of `step`, and tells whether there is one: a step that is for no average, or that all have seen, has none.
    ///
    /// # Errors
    /// If the update before was never finished: the averages are then a mixture, and have to be loaded again.
    pub fn begin_update(&self, step: u64) -> Result<bool, Error> {
        let mut inner = self.write();
        let Inner { progress, phase } = &mut *inner;
        let memories = match phase {
            Phase::Updating(update) => return Err(unfinished(update)),
            Phase::Resting(memories) => memories,
        };
        let weight = |(ema, progress): (&Ema, &Progress)| {
            let is_due = progress.is_due(ema, step);
            is_due.then(|| ema.weight(progress.updates + 1))
        };
        let weights: Vec<_> = self
            .definitions
            .iter()
            .zip(&*progress)
            .map(weight)
            .collect();
        if weights.iter().all(Option::is_none) {
            return Ok(false);
        }
        reclaim(memories);
        let cut = |segment: &Segment| {
            Mutex::new(split_to(&mut memories[segment.tensor], segment.elements))
        };
        let segments = self.segments.iter().map(cut).collect();
        *phase = Phase::Updating(Update {
            step,
            weights,
            segments,
            absorbed: AtomicU64::new(0),
        });
        Ok(true)
    }

    /// Shows the averages the bytes of the source from `offset` on. Any thread may do so, for its own part of the source.
    ///
    /// # Errors
    /// If no update was begun, or the bytes lie outside the source or begin or end inside an element.
    pub fn absorb(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let inner = self.read();
        let Phase::Updating(update) = &inner.phase else {
            return Err(misused("are shown bytes without an update".into()));
        };
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.source_len_bytes {
            let len = self.source_len_bytes;
            return Err(misused(format!(
                "are shown bytes {offset}..{end} of a source of {len}"
            )));
        }
        let first = self
            .segments
            .partition_point(|segment| segment.end <= offset);
        let met = self.segments[first..]
            .iter()
            .take_while(|segment| segment.begin < end);
        for (index, segment) in (first..).zip(met) {
            let tensor = &self.tensors[segment.tensor];
            let (begin, stop) = (offset.max(segment.begin), end.min(segment.end));
            let [skip, from, to] = [begin - segment.begin, begin - offset, stop - offset]
                .map(|len| usize::try_from(len).expect("inside a buffer in memory"));
            let width = tensor.element_bytes();
            if !skip.is_multiple_of(width) || !(to - from).is_multiple_of(width) {
                let name = &tensor.name;
                return Err(misused(format!(
                    "are shown an element of `{name}` cut in two"
                )));
            }
            let absorbed = update.absorb(index, tensor.dtype, skip / width, &bytes[from..to]);
            absorbed.map_err(|source| Error::Copy {
                name: tensor.name.clone(),
                source,
            })?;
            update.absorbed.fetch_add(stop - begin, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the update, if there is one.
    ///
    /// # Errors
    /// If not all of the source was seen: the averages are a mixture, and have to be loaded again.
    pub fn finish_update(&self) -> Result<(), Error> {
        let mut inner = self.write();
        let Inner { progress, phase } = &mut *inner;
        let Phase::Updating(update) = phase else {
            return Ok(());
        };
        let wanted: u64 = self.segments.iter().map(Segment::len_bytes).sum();
        if update.absorbed.load(Ordering::Relaxed) != wanted {
            return Err(unfinished(update));
        }
        for (progress, weight) in progress.iter_mut().zip(&update.weights) {
            if weight.is_some() {
                progress.updates += 1;
                progress.last_step = Some(update.step);
            }
        }
        self.rest(phase);
        Ok(())
    }

    /// Joins the segments again.
    fn rest(&self, phase: &mut Phase) {
        let ended = std::mem::replace(phase, Phase::Resting(Vec::new()));
        let Phase::Updating(update) = ended else {
            *phase = ended;
            return;
        };
        let empty = self
            .tensors
            .iter()
            .map(|tensor| tensor.none(&self.definitions));
        let mut memories: Vec<Memories> = empty.collect();
        for (segment, memory) in self.segments.iter().zip(update.segments) {
            let memory = memory.into_inner().unwrap_or_else(PoisonError::into_inner);
            unsplit(&mut memories[segment.tensor], memory);
        }
        *phase = Phase::Resting(memories);
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every definition makes sense, and no label is given twice.
fn check_definitions(definitions: &[Ema]) -> Result<(), Error> {
    let mut labels = BTreeSet::new();
    for ema in definitions {
        ema.check()?;
        if !labels.insert(&ema.label) {
            let reason = "is defined twice".into();
            let label = ema.label.clone();
            return Err(Error::Average { label, reason });
        }
    }
    Ok(())
}

fn misused(reason: String) -> Error {
    let name = "the averages".into();
    Error::State { name, reason }
}

/// The error of an update that did not end.
pub(super) fn unfinished(update: &Update) -> Error {
    misused(format!(
        "are in the middle of the update of step {}, which has seen {} bytes of its source",
        update.step,
        update.absorbed.load(Ordering::Relaxed)
    ))
}
