//! A group of ranks that send each other messages, and one rank's place in it.

use super::Transport;
use super::letter::{Address, Kind, Letter, write};
use super::mailbox::{Mailbox, Missed, Wanted};
use crate::call::Call;
use crate::communicator::{SMALL_BYTES, ended, fits, number, share, starts};
use crate::reduce::combine;
use crate::{Communicator, Error};
use cairn_tensor::{DType, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What all groups of a rank share.
#[derive(Debug)]
struct Post {
    transport: Arc<dyn Transport>,
    mailbox: Arc<Mailbox>,
    timeout: Duration,
    /// How many names for groups this rank has proposed.
    names: AtomicU64,
}

/// A rank's place in a group.
#[derive(Debug)]
pub(super) struct Member {
    post: Arc<Post>,
    /// The same on all members, and that of no other group.
    name: u64,
    world_ranks: Vec<usize>,
    rank: usize,
    /// How many calls this rank has made in the group.
    calls: AtomicU64,
}

impl Member {
    pub(super) fn world(
        transport: Arc<dyn Transport>,
        mailbox: Arc<Mailbox>,
        timeout: Duration,
    ) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        let post = Arc::new(Post {
            transport,
            mailbox,
            timeout,
            names: AtomicU64::new(0),
        });
        Self::new(post, 0, (0..size).collect(), rank)
    }

    fn new(post: Arc<Post>, name: u64, world_ranks: Vec<usize>, rank: usize) -> Self {
        Self {
            post,
            name,
            world_ranks,
            rank,
            calls: AtomicU64::new(0),
        }
    }

    /// Sends each rank its part and reads the parts that all have for this one, in order.
    fn exchange<'a, R>(
        &self,
        call: Call,
        part: impl Fn(usize) -> &'a [u8],
        read: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, Error> {
        if let Some(reason) = self.post.mailbox.closed() {
            return Err(ended(&reason));
        }
        let address = Address {
            kind: Kind::Call,
            group: self.name,
            number: self.calls.fetch_add(1, Ordering::Relaxed),
        };
        let text = call.to_string();
        let others = (0..self.size()).filter(|rank| *rank != self.rank);
        let mut wanted: Vec<Wanted> = Vec::with_capacity(self.size());
        for rank in others {
            let to = self.world_ranks[rank];
            let message = write(address, &text, part(rank));
            self.post.transport.send(to, message);
            wanted.push((to, address));
        }
        let letters = self.collect(&text, &wanted)?;
        let calls = wanted.iter().zip(&letters);
        self.compare(
            text,
            calls.map(|((from, _), letter)| (*from, letter.call())),
        )?;
        let mut parts: Vec<&[u8]> = letters.iter().map(|letter| letter.payload()).collect();
        parts.insert(self.rank, part(self.rank));
        Ok(read(&parts))
    }

    fn collect(&self, call: &str, wanted: &[Wanted]) -> Result<Vec<Letter>, Error> {
        let Post {
            mailbox, timeout, ..
        } = self.post.as_ref();
        mailbox
            .collect(wanted, *timeout)
            .map_err(|missed| match missed {
                Missed::Closed(reason) => ended(&reason),
                Missed::Late(missing) => self.fail(Error::Absent {
                    call: call.to_string(),
                    missing,
                    waited: *timeout,
                }),
            })
    }

    /// Refuses calls of others that are not this rank's.
    fn compare(
        &self,
        own: String,
        others: impl Iterator<Item = (usize, String)>,
    ) -> Result<(), Error> {
        let mut calls: Vec<(usize, String)> = others.collect();
        if calls.iter().all(|(_, call)| *call == own) {
            return Ok(());
        }
        calls.insert(self.rank, (self.world_ranks[self.rank], own));
        let mut different: Vec<(usize, String)> = Vec::new();
        for (rank, call) in calls {
            if !different.iter().any(|(_, other)| *other == call) {
                different.push((rank, call));
            }
        }
        Err(self.fail(Error::Differ { calls: different }))
    }

    /// Makes an error that this rank found everybody's.
    fn fail(&self, error: Error) -> Error {
        self.end(&error.to_string());
        error
    }

    fn check(&self, rank: usize) -> Result<usize, Error> {
        let size = self.size();
        let world_rank = self.world_ranks.get(rank).copied();
        world_rank.ok_or(Error::NoRank { rank, size })
    }

    /// Combines what all have for this rank into `out`.
    fn combined<'a>(
        &self,
        call: Call,
        part: impl Fn(usize) -> &'a [u8],
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (dtype, op) = call.reduction.expect("a call that combines");
        self.exchange(call, part, |terms| {
            for term in terms {
                fits(call.name, out.len(), term)?;
            }
            combine(dtype, op, terms, out)
        })?
    }
}

impl Communicator for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.world_ranks.len()
    }

    fn world_ranks(&self) -> &[usize] {
        &self.world_ranks
    }

    fn all_reduce(&self, dtype: DType, op: ReduceOp, bytes: &mut [u8]) -> Result<(), Error> {
        let (len, size) = (bytes.len(), self.size());
        let call = Call::new("all_reduce", len).reducing(dtype, op);
        if len <= SMALL_BYTES {
            let mut all = vec![0; len];
            self.combined(call, |_| bytes, &mut all)?;
            bytes.copy_from_slice(&all);
            return Ok(());
        }
        let range = |rank: usize| share(dtype, rank, size, len);
        let mut own = vec![0; range(self.rank).len()];
        self.combined(call, |rank| &bytes[range(rank)], &mut own)?;
        self.exchange(
            call,
            |_| &own,
            |parts| {
                for (rank, part) in parts.iter().enumerate() {
                    bytes[range(rank)].copy_from_slice(part);
                }
            },
        )
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
        fits("reduce_scatter", lens[self.rank], out)?;
        let call = Call::new("reduce_scatter", bytes.len()).reducing(dtype, op);
        self.combined(call, |rank| &bytes[starts[rank]..starts[rank + 1]], out)
    }

    fn all_gather(&self, bytes: &[u8], lens: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let starts = starts("all_gather", lens, self.size(), out.len())?;
        fits("all_gather", lens[self.rank], bytes)?;
        self.exchange(
            Call::new("all_gather", out.len()),
            |_| bytes,
            |parts| {
                for (rank, part) in parts.iter().enumerate() {
                    fits("all_gather", lens[rank], part)?;
                    out[starts[rank]..starts[rank + 1]].copy_from_slice(part);
                }
                Ok(())
            },
        )?
    }

    fn all_to_all(
        &self,
        bytes: &[u8],
        send_lens: &[usize],
        out: &mut [u8],
        receive_lens: &[usize],
    ) -> Result<(), Error> {
        let size = self.size();
        let sent = starts("all_to_all", send_lens, size, bytes.len())?;
        let places = starts("all_to_all", receive_lens, size, out.len())?;
        let part = |rank: usize| &bytes[sent[rank]..sent[rank + 1]];
        self.exchange(Call::new("all_to_all", size), part, |parts| {
            for (rank, part) in parts.iter().enumerate() {
                fits("all_to_all", receive_lens[rank], part)?;
                out[places[rank]..places[rank + 1]].copy_from_slice(part);
            }
            Ok(())
        })?
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(root)?;
        let call = Call::new("broadcast", bytes.len());
        if self.rank == root {
            return self.exchange(call, |_| bytes, |_| ());
        }
        let received = self.exchange(call, |_| &[], |parts| parts[root].to_vec())?;
        fits("broadcast", bytes.len(), &received)?;
        bytes.copy_from_slice(&received);
        Ok(())
    }

    fn barrier(&self) -> Result<(), Error> {
        self.exchange(Call::new("barrier", 0), |_| &[], |_| ())
    }

    fn send(&self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        let (from, to) = (self.world_ranks[self.rank], self.check(to)?);
        if let Some(reason) = self.post.mailbox.closed() {
            return Err(ended(&reason));
        }
        let address = Address {
            kind: Kind::Message,
            group: self.name,
            number: tag,
        };
        let message = write(address, "send", bytes);
        match to == from {
            true => self.post.mailbox.deliver(from, message),
            false => self.post.transport.send(to, message),
        }
        Ok(())
    }

    fn receive(&self, from: usize, tag: u64, out: &mut [u8]) -> Result<(), Error> {
        let from = self.check(from)?;
        let address = Address {
            kind: Kind::Message,
            group: self.name,
            number: tag,
        };
        let call = Call::new("receive", out.len()).to_string();
        for letter in self.collect(&call, &[(from, address)])? {
            fits("receive", out.len(), letter.payload())?;
            out.copy_from_slice(letter.payload());
        }
        Ok(())
    }

    fn split(&self, color: u64, key: u64) -> Result<Arc<dyn Communicator>, Error> {
        // Rank and count make a name that nobody else proposes; 0 is the world's.
        let count = self.post.names.fetch_add(1, Ordering::Relaxed) + 1;
        let name = count * self.post.transport.size() as u64 + self.post.transport.rank() as u64;
        let own = [color, key, name].map(u64::to_le_bytes).concat();
        let given = |part: &&[u8]| [&part[..8], &part[8..16], &part[16..]].map(number);
        let call = Call::new("split", 0);
        let all: Vec<[u64; 3]> =
            self.exchange(call, |_| &own, |parts| parts.iter().map(given).collect())?;
        let same = all
            .iter()
            .enumerate()
            .filter(|(_, given)| given[0] == color);
        let mut members: Vec<(u64, usize)> = same.map(|(rank, given)| (given[1], rank)).collect();
        members.sort_unstable();
        let place = members.iter().position(|(_, rank)| *rank == self.rank);
        let ranks = members.iter().map(|(_, rank)| self.world_ranks[*rank]);
        let (_, first) = members[0];
        Ok(Arc::new(Member::new(
            self.post.clone(),
            all[first][2],
            ranks.collect(),
            place.expect("it gave this color itself"),
        )))
    }

    fn end(&self, reason: &str) {
        let Post {
            transport, mailbox, ..
        } = self.post.as_ref();
        if mailbox.close(reason) {
            let others = (0..transport.size()).filter(|rank| *rank != transport.rank());
            for rank in others {
                transport.send(rank, write(Address::END, "", reason.as_bytes()));
            }
        }
    }
}
