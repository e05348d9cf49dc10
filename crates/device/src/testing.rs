//! A device that is none: its memory is the host's, its streams are threads.
//!
//! Work of a stream runs in order, work of different streams in any: every task waits a little while first, another each time. What
//! a test of a real device would see rarely, a test of this one sees soon.

mod shared;

pub use shared::SharedBytes;

use crate::Error;
use crate::device::{Device, DeviceCopy, Lane, Mark, Stream};
use crate::memory::{Memory, Owner, Place};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The stream of the lane's copies.
const LANE: Stream = Stream(u64::MAX);

type Task = Box<dyn FnOnce() + Send>;

/// A simulated device.
#[derive(Debug)]
pub struct Simulated {
    streams: Mutex<BTreeMap<Stream, Sender<Task>>>,
    random: AtomicU64,
    longest_pause: Duration,
    refuse_pinning: AtomicBool,
    scratch_left: AtomicUsize,
    pinned: AtomicUsize,
    fail_copies: Arc<AtomicBool>,
}

/// A tensor on a simulated device.
#[derive(Debug, Clone)]
pub struct SimulatedTensor {
    device: Arc<Simulated>,
    bytes: Arc<Block>,
}

/// Memory that streams change while others read it, as a device's is.
#[derive(Debug)]
struct Block {
    start: *mut u8,
    len: usize,
}

// SAFETY: a block is raw memory; who reads and writes it when is what the tests are about.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Simulated {
    /// A device whose every task waits for up to `longest_pause` first, by chance from `seed`.
    pub fn new(seed: u64, longest_pause: Duration) -> Arc<Self> {
        Arc::new(Self {
            streams: Mutex::default(),
            random: AtomicU64::new(seed | 1),
            longest_pause,
            refuse_pinning: AtomicBool::new(false),
            scratch_left: AtomicUsize::new(usize::MAX),
            pinned: AtomicUsize::new(0),
            fail_copies: Arc::default(),
        })
    }

    /// Lets pinning fail from now on.
    pub fn refuse_pinning(&self) {
        self.refuse_pinning.store(true, Ordering::Relaxed);
    }

    /// Lets the device have so many bytes of memory left.
    pub fn limit_scratch(&self, len: usize) {
        self.scratch_left.store(len, Ordering::Relaxed);
    }

    /// Lets copies to the host fail from now on.
    pub fn fail_copies(&self) {
        self.fail_copies.store(true, Ordering::Relaxed);
    }

    /// The bytes that are pinned now.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// A tensor with these bytes.
    pub fn tensor(self: &Arc<Self>, bytes: &[u8]) -> SimulatedTensor {
        SimulatedTensor {
            device: self.clone(),
            bytes: Arc::new(Block::new(bytes.to_vec())),
        }
    }

    /// Waits until a stream has done what it was given.
    pub fn synchronize(&self, stream: Stream) {
        self.record(stream).wait();
    }

    fn push(&self, stream: Stream, task: Task) {
        let pause = self.pause();
        let mut streams = lock(&self.streams);
        let sender = streams.entry(stream).or_insert_with(|| {
            let (sender, tasks) = channel::<Task>();
            thread::spawn(move || tasks.iter().for_each(|task| task()));
            sender
        });
        let task = move || {
            thread::sleep(pause);
            task();
        };
        // The thread lives as long as its sender.
        let _ = sender.send(Box::new(task));
    }

    fn pause(&self) -> Duration {
        let next = |value: u64| {
            Some(
                value
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407),
            )
        };
        let value = self
            .random
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let value = value.unwrap_or_default() >> 33;
        self.longest_pause.mul_f64((value % 1000) as f64 / 1000.0)
    }

    fn record(&self, stream: Stream) -> Arc<Reached> {
        let mark = Arc::new(Reached::default());
        let reached = mark.clone();
        self.push(stream, Box::new(move || reached.reach()));
        mark
    }
}

impl SimulatedTensor {
    /// Its memory, written by the work of `stream`.
    pub fn memory(&self, stream: Stream) -> Memory {
        let place = Place::Device(self.device.clone(), stream);
        let address = self.bytes.start.expose_provenance() as u64;
        // SAFETY: the block is readable for as long as it lives, and it is its own owner.
        unsafe { Memory::new(place, address, self.bytes.len, self.bytes.clone()) }
    }

    /// Has `stream` fill it with `value`, byte by byte, slowly enough for others to see it half done.
    pub fn fill(&self, stream: Stream, value: u8) {
        let bytes = self.bytes.clone();
        let task = move || {
            for index in 0..bytes.len {
                // SAFETY: inside the block.
                unsafe { bytes.start.add(index).write_volatile(value) };
                if index % 512 == 511 {
                    thread::yield_now();
                }
            }
        };
        self.device.push(stream, Box::new(task));
    }
}

impl Device for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn warm_up(&self) -> Result<(), Error> {
        Ok(())
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(SimulatedLane {
            device: self,
            failed: Arc::default(),
        }))
    }

    fn allocate(self: Arc<Self>, len: usize) -> Result<(u64, Owner), Error> {
        let take = |left: usize| left.checked_sub(len);
        let taken = self
            .scratch_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_| Error::NoScratch {
            device: self.name().into(),
            len_bytes: len,
        })?;
        let block = Block::new(vec![0; len]);
        Ok((block.start.expose_provenance() as u64, Arc::new(block)))
    }

    unsafe fn pin(&self, _: *mut u8, len: usize) -> Result<(), Error> {
        if self.refuse_pinning.load(Ordering::Relaxed) {
            return Err(Error::Call {
                device: self.name().into(),
                doing: "pin host memory",
                reason: "out of memory".into(),
            });
        }
        self.pinned.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn unpin(&self, _: *mut u8) {}
}

#[derive(Debug)]
struct SimulatedLane {
    device: Arc<Simulated>,
    /// Whether a copy before failed: marks behind it report that.
    failed: Arc<AtomicBool>,
}

impl SimulatedLane {
    fn copy(&self, source: u64, target: u64, len: usize, failing: bool) {
        let fail = failing && self.device.fail_copies.load(Ordering::Relaxed);
        let failed = self.failed.clone();
        let task = move || {
            failed.fetch_or(fail, Ordering::Relaxed);
            let at = |address: u64| usize::try_from(address).expect("an address of the host");
            for index in 0..len {
                let source = (at(source) + index) as *const u8;
                let target = (at(target) + index) as *mut u8;
                // SAFETY: the caller of `pack` and `fetch` vouches for both ends.
                unsafe { target.write_volatile(source.read_volatile()) };
            }
        };
        self.device.push(LANE, Box::new(task));
    }
}

impl Lane for SimulatedLane {
    fn follow(&mut self, stream: Stream) -> Result<(), Error> {
        self.device.record(stream).hold_on(&self.device, LANE);
        Ok(())
    }

    unsafe fn pack(&mut self, copies: &[DeviceCopy]) -> Result<(), Error> {
        for copy in copies {
            self.copy(copy.source, copy.target, copy.len, false);
        }
        Ok(())
    }

    unsafe fn fetch(&mut self, source: u64, target: *mut u8, len: usize) -> Result<(), Error> {
        self.copy(source, target.expose_provenance() as u64, len, true);
        Ok(())
    }

    fn mark(&mut self) -> Result<Arc<dyn Mark>, Error> {
        Ok(Arc::new(SimulatedMark {
            device: self.device.clone(),
            reached: self.device.record(LANE),
            failed: self.failed.clone(),
        }))
    }
}

#[derive(Debug)]
struct SimulatedMark {
    device: Arc<Simulated>,
    reached: Arc<Reached>,
    failed: Arc<AtomicBool>,
}

impl Mark for SimulatedMark {
    fn wait(&self) -> Result<(), Error> {
        self.reached.wait();
        match self.failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Call {
                device: "simulated".into(),
                doing: "copy to the host",
                reason: "the copy was made to fail".into(),
            }),
        }
    }

    fn hold(&self, stream: Stream) -> Result<(), Error> {
        self.reached.clone().hold_on(&self.device, stream);
        Ok(())
    }

    fn since(&self, _: &dyn Mark) -> Option<Duration> {
        None
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[derive(Debug, Default)]
struct Reached {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Reached {
    fn reach(&self) {
        *lock(&self.is) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut is = lock(&self.is);
        while !*is {
            is = self
                .changed
                .wait(is)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hold_on(self: Arc<Self>, device: &Simulated, stream: Stream) {
        device.push(stream, Box::new(move || self.wait()));
    }
}

impl Block {
    fn new(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        let start = Box::into_raw(bytes.into_boxed_slice()).cast();
        Self { start, len }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.start, self.len);
        // SAFETY: the box taken apart in `new`, put together once.
        drop(unsafe { Box::from_raw(slice) });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
