//! How requests are divided between the ranks that can serve them.

use cairn_sharding::Region;

use super::{Planner, Work};
use crate::{
    Error,
    atoms::Atom,
    cut::{cut_after, cut_dim},
    load::water_level,
};

/// A rank that can send, and which of an atom's holders it is one of.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) rank: usize,
    pub(super) holder: usize,
}

/// A rank that needs an atom.
pub(super) struct Request<'a> {
    pub(super) atom: &'a Atom,
    pub(super) target: usize,
}

/// All of an atom or a part of it, from one rank to another.
pub(super) struct Message<'a> {
    pub(super) sender: Candidate,
    pub(super) atom: &'a Atom,
    pub(super) region: Region,
    pub(super) target: usize,
}

impl Message<'_> {
    /// Whether two messages carry the same from the same rank.
    pub(super) fn same_sending(&self, other: &Message<'_>) -> bool {
        self.sender.rank == other.sender.rank
            && std::ptr::eq(self.atom, other.atom)
            && self.region == other.region
    }
}

impl Planner {
    /// Lays all requests end to end and cuts them so that the candidates end with equal loads.
    ///
    /// There are at most as many messages as requests and candidates together.
    pub(super) fn divide<'a>(
        &mut self,
        work: &Work<'_>,
        mut candidates: Vec<Candidate>,
        requests: &[Request<'a>],
    ) -> Result<Vec<Message<'a>>, Error> {
        candidates.sort_by_key(|candidate| (self.load.sent(candidate.rank), candidate.rank));
        let level = self.level(work, &candidates, requests)?;
        let mut turn = 0;
        let mut messages = Vec::new();
        for &Request { atom, target } in requests {
            let mut rest = Some(atom.region().clone());
            while let Some(region) = rest.take() {
                let sender = candidates[turn];
                let room = match turn + 1 == candidates.len() {
                    true => usize::MAX,
                    false => level.saturating_sub(self.load.sent(sender.rank)),
                };
                let (taken, left) = self.split(work, region, room, candidates.len())?;
                if let Some(region) = taken {
                    self.load.add(sender.rank, target, work.len_bytes(&region)?);
                    messages.push(Message {
                        sender,
                        atom,
                        region,
                        target,
                    });
                }
                turn += usize::from(left.is_some());
                rest = left;
            }
        }
        Ok(messages)
    }

    /// The load every candidate should end with.
    fn level(
        &self,
        work: &Work<'_>,
        candidates: &[Candidate],
        requests: &[Request<'_>],
    ) -> Result<usize, Error> {
        let sent = candidates
            .iter()
            .map(|candidate| self.load.sent(candidate.rank));
        let loads: Vec<usize> = sent.collect();
        let mut total: usize = 0;
        for request in requests {
            total = total.saturating_add(work.len_bytes(request.atom.region())?);
        }
        Ok(water_level(&loads, total))
    }

    /// Splits a box into what a sender with room for so many bytes takes of it, and the rest.
    fn split(
        &self,
        work: &Work<'_>,
        region: Region,
        room: usize,
        parts: usize,
    ) -> Result<(Option<Region>, Option<Region>), Error> {
        let len_bytes = work.len_bytes(&region)?;
        let least = self.options.min_message_bytes;
        if room == 0 {
            return Ok((None, Some(region)));
        }
        let dim = cut_dim(&region, parts).filter(|_| work.divisible());
        let Some(dim) = dim.filter(|_| len_bytes > room.saturating_add(least)) else {
            return Ok((Some(region), None));
        };
        let indices = room / (len_bytes / region.extent[dim]);
        if indices == 0 || room < least {
            return Ok((None, Some(region)));
        }
        let (taken, left) = cut_after(&region, dim, indices);
        Ok((Some(taken), Some(left)))
    }
}
