//! The chunks of one capture, on their way from the state to the writer.

use super::fill::Filler;
use super::gate::Gate;
use super::issue::{FirstRead, Issuing, Waiting, lock};
use super::lanes::{Lanes, failed};
use super::picture::Picture;
use super::scratch::{ScratchCache, Staged};
use super::turns::{Batch, Shared, batches};
use crate::Error;
use crate::bytes::Bytes;
use crate::pool::Pool;
use crate::sync::{AtomicUsize, Mutex};
use crate::timeline::{Lane, Recorder};
use crate::writer::{Draining, Sink, chunk_count};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a state is captured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) threads: usize,
    pub(crate) scratch_bytes: u64,
    pub(crate) read_twice: bool,
}

/// A capture that has begun: everything that could not wait is on its way.
pub(crate) struct Flow {
    picture: Arc<Picture>,
    bytes: Vec<Bytes<'static>>,
    staged: Staged,
    lanes: Mutex<Lanes>,
    pool: Arc<Pool>,
    writer: Sink,
    pub(crate) gate: Arc<Gate>,
    recorder: Recorder,
    mode: Mode,
    /// Chunks that are still to be filled before a fence, in the order of their turns.
    fenced: Vec<Batch>,
    /// Chunks that no fence waits for: everything in them is scratch memory of ours.
    behind: Vec<usize>,
    /// Chunks on their way from a device.
    waiting: Waiting,
}

/// What a capture needs besides the state.
pub(crate) struct Means<'a> {
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) scratch: &'a ScratchCache,
    pub(crate) gate: Arc<Gate>,
    pub(crate) recorder: Recorder,
    pub(crate) mode: Mode,
}

impl Flow {
    /// Puts everything that cannot wait on its way: what is only borrowed is captured when this returns.
    pub(crate) fn begin(
        picture: Arc<Picture>,
        bytes: &[Bytes],
        writer: Sink,
        means: Means,
    ) -> Result<Self, Error> {
        let Picture {
            image,
            copies,
            outline,
        } = picture.as_ref();
        let mut lanes = Lanes::follow(bytes)?;
        if let Some(device) = lanes.devices().next() {
            means.pool.pin_for(device);
        }
        let packing = means.recorder.span(Lane::Pack);
        let budget = means.mode.scratch_bytes;
        let staged = Staged::pack(copies, bytes, &mut lanes, means.scratch, budget)?;
        drop(packing.bytes(staged.len_bytes));
        staged
            .notes
            .iter()
            .for_each(|note| means.recorder.note(note));
        let lanes = Mutex::new(lanes);
        let filler = Filler {
            image,
            copies,
            outline,
            bytes,
            staged: &staged,
            lanes: &lanes,
        };
        let (now, later): (Vec<usize>, Vec<usize>) =
            (0..chunk_count(image.len)).partition(|index| filler.cannot_wait(*index));
        let shared = Shared::find(bytes);
        let turns = |index: usize| (index, filler.turns(index, &shared));
        let later = later.into_iter().map(turns);
        let (fenced, behind): (Vec<_>, Vec<_>) = later.partition(|(_, turns)| !turns.is_empty());
        let fenced = batches(fenced, bytes.iter().map(Bytes::turn));
        let issuing = Issuing {
            filler,
            chunks: &now,
            next: AtomicUsize::new(0),
            pool: means.pool,
            writer: &writer,
            gate: &means.gate,
            recorder: &means.recorder,
            first_read: None,
        };
        let waiting = issuing.run(means.mode.threads, Waiting::new(means.pool))?;
        hold_all(&lanes, &waiting)?;
        let owned = bytes.iter().map(outliving).collect();
        means
            .recorder
            .capture(mode_text(&staged, means.pool, image.len));
        Ok(Self {
            bytes: owned,
            staged,
            lanes,
            pool: means.pool.clone(),
            writer,
            gate: means.gate,
            recorder: means.recorder,
            mode: means.mode,
            fenced,
            behind: behind.into_iter().map(|(index, _)| index).collect(),
            waiting,
            picture,
        })
    }

    /// Captures the rest, and returns when every byte is in our memory. Fences go as soon as the last copy is in its device's queue.
    pub(crate) fn finish(mut self) -> Result<Draining, Error> {
        // Nobody waits for what will not come, even if the capture panics.
        let over = Over(self.gate.clone());
        let rest = self.rest();
        drop(over);
        match rest {
            Ok(()) => Ok(self.writer.close()),
            Err(error) => {
                self.writer.abandon();
                Err(error)
            }
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        let first_read = self.mode.read_twice.then(Mutex::default);
        let mut waiting = std::mem::replace(&mut self.waiting, Waiting::new(&self.pool));
        for batch in &self.fenced {
            let issuing = self.issuing(&batch.chunks, &first_read);
            waiting = issuing.run(self.threads(), waiting)?;
            if first_read.is_none() {
                let marks = lock(&self.lanes).marks()?;
                self.gate.issue(&batch.turns, &marks);
            }
        }
        if first_read.is_none() {
            self.gate.issue_all();
        }
        let behind = self.issuing(&self.behind, &first_read);
        waiting = behind.run(self.threads(), waiting)?;
        behind.arrive_all(waiting)?;
        if let Some(first) = &first_read {
            self.read_again(&lock(first))?;
        }
        let torn = self.gate.capture();
        torn.map_err(|names| Error::Torn { names })
    }

    /// A device's queue is one; more threads would only disturb its order.
    fn threads(&self) -> usize {
        let on_device = !lock(&self.lanes).is_empty();
        if on_device { 1 } else { self.mode.threads }
    }

    fn issuing<'a>(
        &'a self,
        chunks: &'a [usize],
        first_read: &'a Option<Mutex<FirstRead>>,
    ) -> Issuing<'a> {
        let Picture {
            image,
            copies,
            outline,
        } = self.picture.as_ref();
        Issuing {
            filler: Filler {
                image,
                copies,
                outline,
                bytes: &self.bytes,
                staged: &self.staged,
                lanes: &self.lanes,
            },
            chunks,
            next: AtomicUsize::new(0),
            pool: &self.pool,
            writer: &self.writer,
            gate: &self.gate,
            recorder: &self.recorder,
            first_read: first_read.as_ref(),
        }
    }

    /// Reads everything once more and compares, before a fence lets anybody change it.
    fn read_again(&self, first: &FirstRead) -> Result<(), Error> {
        let none = None;
        let filler = self.issuing(&[], &none).filler;
        let mut names = BTreeSet::new();
        for (index, crcs) in first {
            let filled = filler.fill(*index, self.pool.take()?);
            let buffer = filled.and_then(|filling| filling.finish().map_err(failed));
            let buffer = buffer.inspect_err(|_| self.pool.lose())?;
            for ((number, crc), (_, now)) in crcs.iter().zip(filler.crcs(*index, &buffer)) {
                if now != *crc {
                    let tensor = filler.copies.all()[*number].tensor;
                    names.insert(self.picture.tensor_name(tensor));
                }
            }
            self.pool.give(buffer);
        }
        match names.is_empty() {
            true => Ok(()),
            false => Err(Error::Torn {
                names: names.into_iter().collect(),
            }),
        }
    }
}

/// The end of a capture.
struct Over(Arc<Gate>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Makes the streams of every device wait for the copies that could not.
fn hold_all(lanes: &Mutex<Lanes>, waiting: &Waiting) -> Result<(), Error> {
    if waiting.coming.is_empty() {
        return Ok(());
    }
    let mut lanes = lock(lanes);
    for (device, mark) in lanes.marks()? {
        lanes.hold(&device, mark.as_ref())?;
    }
    Ok(())
}

/// What is left of bytes once the caller's loan has ended.
fn outliving(bytes: &Bytes) -> Bytes<'static> {
    match bytes {
        // Captured: no chunk that is left looks at it.
        Bytes::Borrowed(_) => Bytes::Borrowed(&[]),
        Bytes::Shared(memory) => Bytes::Shared(memory.clone()),
        Bytes::Fenced(memory, turn) => Bytes::Fenced(memory.clone(), *turn),
        Bytes::Promised(promise) => Bytes::Promised(promise.clone()),
        Bytes::Stored(stored) => Bytes::Stored(stored.clone()),
    }
}

fn mode_text(staged: &Staged, pool: &Pool, len: u64) -> &'static str {
    match (pool.holds(len), staged.len_bytes > len / 2) {
        (false, _) => "ring",
        (true, true) => "device scratch",
        (true, false) => "host image",
    }
}
