//! Which tensors are copied inside their device first, so that their owner need not wait for the way to the host.

use super::copies::{Copies, Copy};
use super::lanes::{Lanes, failed};
use crate::Error;
use crate::bytes::Bytes;
use crate::sync::{Mutex, PoisonError};
use cairn_device::{Device, Owner, Place, Scratch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Scratch memory that every save may use, for small tensors and for those that nobody fences: 32 MiB a device.
const ALWAYS_BYTES: u64 = 32 << 20;
/// Tensors up to this length cost less in one packed copy than in one of their own.
const SMALL_BYTES: usize = 64 << 10;

/// Scratch memory, kept from save to save.
#[derive(Debug, Default)]
pub(crate) struct ScratchCache(Mutex<BTreeMap<String, Scratch>>);

/// Where the bytes of an item are fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From the tensor itself.
    Direct,
    /// From the scratch of its device: the item's bytes lie there one after another, from here on.
    At(usize),
    /// Together with the copy before it, which is of the same item.
    Joined,
}

/// What was copied inside devices, and where it lies.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    stages: Vec<Stage>,
    scratch: BTreeMap<String, Scratch>,
    /// Keeps the sources until the copies are done.
    kept: Kept,
    pub(crate) len_bytes: u64,
    pub(crate) notes: Vec<String>,
}

#[derive(Default)]
struct Kept(Vec<Owner>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kept({})", self.0.len())
    }
}

impl Staged {
    /// Begins the copies into scratch memory, at most `budget` bytes a device, and holds the streams of tensors that nobody fences.
    pub(crate) fn pack(
        copies: &Copies,
        bytes: &[Bytes],
        lanes: &mut Lanes,
        cache: &ScratchCache,
        budget: u64,
    ) -> Result<Self, Error> {
        let mut staged = Self {
            stages: vec![Stage::Direct; copies.all().len()],
            ..Self::default()
        };
        let devices: Vec<_> = lanes.devices().cloned().collect();
        for device in devices {
            let items = choose(copies.all(), bytes, device.name(), budget);
            staged.pack_on(&device, &items, copies.all(), bytes, lanes, cache)?;
        }
        Ok(staged)
    }

    fn pack_on(
        &mut self,
        device: &Arc<dyn Device>,
        items: &[usize],
        copies: &[Copy],
        bytes: &[Bytes],
        lanes: &mut Lanes,
        cache: &ScratchCache,
    ) -> Result<(), Error> {
        let total: usize = items.iter().map(|first| copies[*first].len()).sum();
        if total == 0 {
            return Ok(());
        }
        let scratch = match cache.get(device, total) {
            Ok(scratch) => scratch,
            Err(refusal) => {
                self.notes.push(format!(
                    "the state was copied without scratch memory: {refusal}"
                ));
                return Ok(());
            }
        };
        let mut packing = scratch.packing();
        let mut at = 0;
        for first in items {
            let item = copies[*first].range();
            self.stages[*first] = Stage::At(at);
            for (index, copy) in same_item(copies, *first) {
                let memory = bytes[copy.tensor].memory().expect("it is on a device");
                for run in copy.moves(item.clone()) {
                    packing.add(memory, run.source..run.source + run.len, at + run.at);
                }
                if index > *first {
                    self.stages[index] = Stage::Joined;
                }
            }
            at += copies[*first].len();
        }
        let name = device.name();
        let (mark, kept) = packing.begin(lanes.lane(name)).map_err(failed)?;
        if items
            .iter()
            .any(|first| !bytes[copies[*first].tensor].can_wait())
        {
            lanes.hold(name, mark.as_ref())?;
        }
        self.kept.0.push(kept);
        self.len_bytes += total as u64;
        self.scratch.insert(name.to_string(), scratch);
        Ok(())
    }

    /// Where copy number `index` comes from.
    pub(crate) fn stage(&self, index: usize) -> Stage {
        self.stages[index]
    }

    /// The scratch of a device.
    pub(crate) fn scratch(&self, device: &str) -> &Scratch {
        let scratch = self.scratch.get(device);
        scratch.expect("what is staged lies in the scratch of its device")
    }
}

impl ScratchCache {
    fn get(&self, device: &Arc<dyn Device>, len: usize) -> Result<Scratch, cairn_device::Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = device.name();
        if let Some(scratch) = known
            .get(name)
            .filter(|scratch| scratch.memory().len() >= len)
        {
            return Ok(scratch.clone());
        }
        // Freed first: there may not be room for both.
        known.remove(name);
        let scratch = Scratch::new(device, len)?;
        known.insert(name.to_string(), scratch.clone());
        Ok(scratch)
    }

    /// Allocates what saves of such states will use. If there is no room, they say so themselves.
    pub(crate) fn reserve(&self, copies: &Copies, bytes: &[Bytes], lanes: &Lanes, budget: u64) {
        for device in lanes.devices() {
            let items = choose(copies.all(), bytes, device.name(), budget);
            let total = items.iter().map(|first| copies.all()[*first].len()).sum();
            if total > 0 {
                let _ = self.get(device, total);
            }
        }
    }

    /// Frees what no save uses.
    pub(crate) fn release(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

/// The items of a device that go through scratch, each by its first copy: first what nobody fences and what is small, then the rest in
/// the order of the file, as far as the budget goes.
fn choose(copies: &[Copy], bytes: &[Bytes], device: &str, budget: u64) -> Vec<usize> {
    let takes_all = budget > ALWAYS_BYTES;
    let on_device = |index: &usize| {
        let memory = bytes[copies[*index].tensor].memory();
        let place = memory.map(cairn_device::Memory::place);
        matches!(place, Some(Place::Device(other, _)) if other.name() == device)
    };
    let firsts = (0..copies.len()).filter(|index| is_first(copies, *index));
    let items: Vec<usize> = firsts.filter(on_device).collect();
    let cannot_wait = |index: &usize| {
        !bytes[copies[*index].tensor].can_wait() || copies[*index].len() <= SMALL_BYTES
    };
    let mut left = usize::try_from(budget.max(ALWAYS_BYTES)).unwrap_or(usize::MAX);
    let mut fits = |index: &usize| match left.checked_sub(copies[*index].len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let mut chosen: Vec<usize> = items
        .iter()
        .filter(|item| cannot_wait(item))
        .copied()
        .collect();
    chosen.retain(&mut fits);
    if takes_all {
        let mut rest: Vec<usize> = items
            .iter()
            .filter(|item| !cannot_wait(item))
            .copied()
            .collect();
        rest.retain(&mut fits);
        chosen.extend(rest);
    }
    chosen.sort_unstable();
    chosen
}

fn is_first(copies: &[Copy], index: usize) -> bool {
    index == 0 || copies[index - 1].range() != copies[index].range()
}

/// The copies that make up one item, from its first on.
fn same_item(copies: &[Copy], first: usize) -> impl Iterator<Item = (usize, &Copy)> {
    let item = copies[first].range();
    let numbered = copies.iter().enumerate().skip(first);
    numbered.take_while(move |(_, copy)| copy.range() == item)
}
