//! A group of threads, and one thread's place in it.

use super::mail::{Lost, Mail};
use crate::call::Call;
use crate::communicator::{SMALL_BYTES, ended, fits, number, share, starts};
use crate::reduce::combine;
use crate::{Communicator, Error};
use cairn_device::{Meeting, Missed};
use cairn_tensor::{DType, ReduceOp};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What the members of a group share.
#[derive(Debug)]
pub(super) struct Group {
    meeting: Meeting<Call>,
    mail: Mail,
    world_ranks: Vec<usize>,
    timeout: Duration,
    fate: Arc<Fate>,
    /// Groups that members are about to have, by the number and the color of the split, with how many have them.
    splits: Mutex<Splits>,
}

type Splits = HashMap<(u64, u64), (Arc<Group>, usize)>;

/// What ends all groups of a world together.
#[derive(Debug, Default)]
struct Fate(Mutex<Fated>);

#[derive(Debug, Default)]
struct Fated {
    /// The rank of the world that ended it first, and why.
    end: Option<(usize, String)>,
    groups: Vec<Weak<Group>>,
}

/// A thread's place in a group.
#[derive(Debug)]
pub(super) struct Member {
    group: Arc<Group>,
    rank: usize,
    splits: AtomicU64,
}

impl Group {
    /// All ranks.
    pub(super) fn world(size: usize, timeout: Duration) -> Arc<Self> {
        Self::new((0..size).collect(), timeout, Arc::default())
    }

    fn new(world_ranks: Vec<usize>, timeout: Duration, fate: Arc<Fate>) -> Arc<Self> {
        let group = Arc::new(Self {
            meeting: Meeting::new(world_ranks.len()),
            mail: Mail::default(),
            world_ranks,
            timeout,
            fate,
            splits: Mutex::default(),
        });
        let mut fated = lock(&group.fate.0);
        fated.groups.retain(|other| other.strong_count() > 0);
        fated.groups.push(Arc::downgrade(&group));
        if let Some((_, reason)) = &fated.end {
            group.close(reason);
        }
        drop(fated);
        group
    }

    fn close(&self, reason: &str) {
        self.meeting.close(reason);
        self.mail.close(reason);
    }

    /// The rank of the world that ended everything, if any has.
    pub(super) fn ended_by(&self) -> Option<usize> {
        lock(&self.fate.0).end.as_ref().map(|(rank, _)| *rank)
    }

    /// Ends all groups of the world, because this rank of the group says so.
    fn end(&self, rank: usize, reason: &str) {
        let mut fated = lock(&self.fate.0);
        let end = || (self.world_ranks[rank], reason.to_string());
        let (_, reason) = fated.end.get_or_insert_with(end).clone();
        let groups = fated.groups.clone();
        drop(fated);
        for group in groups.iter().filter_map(Weak::upgrade) {
            group.close(&reason);
        }
    }

    fn in_world(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().map(|rank| self.world_ranks[*rank]).collect()
    }

    /// The error of a visit of `rank` that came to nothing; it is everybody's.
    fn missed(&self, rank: usize, call: Call, missed: Missed<Call>) -> Error {
        let error = match missed {
            Missed::Closed(reason) => return ended(&reason),
            Missed::Absent(ranks) => Error::Absent {
                call: call.to_string(),
                missing: self.in_world(&ranks),
                waited: self.timeout,
            },
            Missed::Differ(calls) => {
                let mut different: Vec<(usize, Call)> = Vec::new();
                for (rank, call) in calls.into_iter().enumerate() {
                    if !different.iter().any(|(_, other)| *other == call) {
                        different.push((self.world_ranks[rank], call));
                    }
                }
                let text = |(rank, call): (usize, Call)| (rank, call.to_string());
                Error::Differ {
                    calls: different.into_iter().map(text).collect(),
                }
            }
        };
        self.end(rank, &error.to_string());
        error
    }
}

impl Member {
    pub(super) fn new(group: Arc<Group>, rank: usize) -> Self {
        Self {
            group,
            rank,
            splits: AtomicU64::new(0),
        }
    }

    fn visit<R>(
        &self,
        call: Call,
        bytes: &[u8],
        read: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, Error> {
        let Group {
            meeting, timeout, ..
        } = self.group.as_ref();
        let visit = meeting.visit(self.rank, call, bytes, *timeout, read);
        visit.map_err(|missed| self.group.missed(self.rank, call, missed))
    }

    fn check(&self, rank: usize) -> Result<(), Error> {
        let size = self.size();
        match rank < size {
            true => Ok(()),
            false => Err(Error::NoRank { rank, size }),
        }
    }

    /// Combines what everybody has of `range` into `out`.
    fn combine(
        &self,
        call: Call,
        bytes: &[u8],
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (dtype, op) = call.reduction.expect("a call that combines");
        self.visit(call, bytes, |lent| {
            let terms: Vec<&[u8]> = lent.iter().map(|term| &term[range.clone()]).collect();
            combine(dtype, op, &terms, out)
        })?
    }

    fn lost(&self, call: Call, other: usize, lost: Lost) -> Error {
        match lost {
            Lost::Closed(reason) => ended(&reason),
            Lost::Late => self
                .group
                .missed(self.rank, call, Missed::Absent(vec![other])),
        }
    }
}

impl Communicator for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.world_ranks.len()
    }

    fn world_ranks(&self) -> &[usize] {
        &self.group.world_ranks
    }

    fn all_reduce(&self, dtype: DType, op: ReduceOp, bytes: &mut [u8]) -> Result<(), Error> {
        let len = bytes.len();
        let call = Call::new("all_reduce", len).reducing(dtype, op);
        if len <= SMALL_BYTES {
            let mut all = vec![0; len];
            self.combine(call, bytes, 0..len, &mut all)?;
            bytes.copy_from_slice(&all);
            return Ok(());
        }
        let mine = share(dtype, self.rank, self.size(), len);
        let mut own = vec![0; mine.len()];
        self.combine(call, bytes, mine, &mut own)?;
        self.visit(call, &own, |lent| {
            for (rank, part) in lent.iter().enumerate() {
                bytes[share(dtype, rank, self.size(), len)].copy_from_slice(part);
            }
        })
    }

    fn reduce_scatter(
        &self,
        dtype: DType,
        op: ReduceOp,
        bytes: &[u8],
        lens: &[usize],
        out: &mut [u8],
    ) -> Result<(), Error> {
        let starts = starts("reduce_scatter", lens, self.size(), bytes.len())?;
        let mine = starts[self.rank]..starts[self.rank + 1];
        fits("reduce_scatter", mine.len(), out)?;
        let call = Call::new("reduce_scatter", bytes.len()).reducing(dtype, op);
        self.combine(call, bytes, mine, out)
    }

    fn all_gather(&self, bytes: &[u8], lens: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let starts = starts("all_gather", lens, self.size(), out.len())?;
        fits("all_gather", lens[self.rank], bytes)?;
        self.visit(Call::new("all_gather", out.len()), bytes, |lent| {
            for (rank, part) in lent.iter().enumerate() {
                fits("all_gather", lens[rank], part)?;
                out[starts[rank]..starts[rank + 1]].copy_from_slice(part);
            }
            Ok(())
        })?
    }

    fn all_to_all(
        &self,
        bytes: &[u8],
        send_lens: &[usize],
        out: &mut [u8],
        receive_lens: &[usize],
    ) -> Result<(), Error> {
        let size = self.size();
        starts("all_to_all", send_lens, size, bytes.len())?;
        let places = starts("all_to_all", receive_lens, size, out.len())?;
        let own: Vec<u8> = send_lens
            .iter()
            .flat_map(|len| (*len as u64).to_le_bytes())
            .collect();
        let sent = self.visit(Call::new("all_to_all", size), &own, |lent| {
            lent.iter()
                .map(|lens| before(lens, self.rank))
                .collect::<Vec<Range<usize>>>()
        })?;
        self.visit(Call::new("all_to_all", size), bytes, |lent| {
            for (rank, (part, range)) in lent.iter().zip(&sent).enumerate() {
                fits("all_to_all", receive_lens[rank], &part[range.clone()])?;
                out[places[rank]..places[rank + 1]].copy_from_slice(&part[range.clone()]);
            }
            Ok(())
        })?
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(root)?;
        let call = Call::new("broadcast", bytes.len());
        if self.rank == root {
            return self.visit(call, bytes, |_| ());
        }
        self.visit(call, &[], |lent| bytes.copy_from_slice(lent[root]))
    }

    fn barrier(&self) -> Result<(), Error> {
        self.visit(Call::new("barrier", 0), &[], |_| ())
    }

    fn send(&self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(to)?;
        let sent = self
            .group
            .mail
            .send((self.rank, to), tag, bytes.to_vec(), self.group.timeout);
        sent.map_err(|lost| self.lost(Call::new("send", bytes.len()), to, lost))
    }

    fn receive(&self, from: usize, tag: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(from)?;
        let received = self
            .group
            .mail
            .receive((from, self.rank), tag, self.group.timeout);
        let bytes =
            received.map_err(|lost| self.lost(Call::new("receive", out.len()), from, lost))?;
        fits("receive", out.len(), &bytes)?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn split(&self, color: u64, key: u64) -> Result<Arc<dyn Communicator>, Error> {
        let own = [color.to_le_bytes(), key.to_le_bytes()].concat();
        let mut members = self.visit(Call::new("split", 0), &own, |lent| {
            let given = lent
                .iter()
                .map(|one| (number(&one[..8]), number(&one[8..])));
            let mine = given.enumerate().filter(|(_, (other, _))| *other == color);
            mine.map(|(rank, (_, key))| (key, rank)).collect::<Vec<_>>()
        })?;
        members.sort_unstable();
        let ranks: Vec<usize> = members.into_iter().map(|(_, rank)| rank).collect();
        let place = ranks.iter().position(|rank| *rank == self.rank);
        let round = self.splits.fetch_add(1, Ordering::Relaxed);
        let Group { timeout, fate, .. } = self.group.as_ref();
        let mut splits = lock(&self.group.splits);
        let made = splits.entry((round, color)).or_insert_with(|| {
            let world = self.group.in_world(&ranks);
            (Group::new(world, *timeout, fate.clone()), 0)
        });
        made.1 += 1;
        let (group, taken) = made.clone();
        if taken == ranks.len() {
            splits.remove(&(round, color));
        }
        Ok(Arc::new(Member::new(
            group,
            place.expect("it gave this color itself"),
        )))
    }

    fn end(&self, reason: &str) {
        self.group.end(self.rank, reason);
    }
}

/// What a rank that sends these lengths sends to `rank`.
fn before(lens: &[u8], rank: usize) -> Range<usize> {
    let len = |index: usize| {
        let len = number(&lens[8 * index..8 * index + 8]);
        usize::try_from(len).expect("a length in this process")
    };
    let start = (0..rank).map(len).sum();
    start..start + len(rank)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
