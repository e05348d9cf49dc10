//! Runs a plan between ranks: tensors change their layout without touching a disk.

use crate::{Communicator, Error};
use cairn_reshard::{Action, Fill, Identity, Plan, Reduction, Transfer};
use cairn_tensor::{DType, Overflow, Runs, Strided, cast, finish_average, reduce_into};

/// Moves a tensor from the source layout of `plan` to its target layout: `source` is what this rank holds, and what it will hold comes back.
///
/// Ranks of the plan are ranks of the group.
///
/// # Collective
/// # Errors
/// If the plan has ranks that the group has not, `source` is not as long as the layout says, or somebody does not call.
pub fn redistribute(
    group: &dyn Communicator,
    plan: &Plan,
    source: &[u8],
) -> Result<Vec<u8>, Error> {
    let (rank, size) = (group.rank(), group.size());
    let mut ranks = plan.source.ranks().into_iter().chain(plan.target.ranks());
    if let Some(rank) = ranks.find(|rank| *rank >= size) {
        return Err(Error::NoRank { rank, size });
    }
    let expected = len_bytes(plan.source.dtype(), plan.source.local_element_count(rank));
    if source.len() != expected {
        return Err(Error::Length {
            call: "redistribute",
            expected,
            actual: source.len(),
        });
    }
    let len = len_bytes(plan.target.dtype(), plan.target.local_element_count(rank));
    let mut moving = Moving {
        group,
        dtype: plan.source.dtype(),
        rank,
        target: vec![0; len],
    };
    let actions: Vec<&Action> = plan.steps.iter().flat_map(|step| &step.actions).collect();
    moving.first(&actions, source)?;
    moving.shares(&actions)?;
    Ok(moving.target)
}

/// One rank, while a tensor moves.
struct Moving<'a> {
    group: &'a dyn Communicator,
    dtype: DType,
    rank: usize,
    target: Vec<u8>,
}

impl Moving<'_> {
    /// Everything that only needs the source layout.
    fn first(&mut self, actions: &[&Action], source: &[u8]) -> Result<(), Error> {
        let mut mail = Mail::new(self.group.size());
        for action in actions {
            match action {
                Action::Copy(transfer) => self.post(transfer, source, &mut mail)?,
                Action::Reduce(reduction) => self.post_term(reduction, source, &mut mail)?,
                Action::Share(_) | Action::Fill(_) => {}
            }
        }
        let mut came = mail.exchange(self.group)?;
        for action in actions {
            match action {
                Action::Copy(transfer) => self.place(transfer, &mut came)?,
                Action::Reduce(reduction) => self.combine(reduction, &mut came)?,
                Action::Fill(fill) => self.fill(fill)?,
                Action::Share(_) => {}
            }
        }
        Ok(())
    }

    /// What was combined at one rank, on its way to the others.
    fn shares(&mut self, actions: &[&Action]) -> Result<(), Error> {
        let shares = actions.iter().filter_map(|action| match action {
            Action::Share(transfer) => Some(transfer),
            _ => None,
        });
        let shares: Vec<&Transfer> = shares.collect();
        if shares.is_empty() {
            return Ok(());
        }
        let mut mail = Mail::new(self.group.size());
        for transfer in &shares {
            self.post(transfer, &self.target, &mut mail)?;
        }
        let mut came = mail.exchange(self.group)?;
        for transfer in shares {
            self.place(transfer, &mut came)?;
        }
        Ok(())
    }

    fn post(&self, transfer: &Transfer, from: &[u8], mail: &mut Mail) -> Result<(), Error> {
        if transfer.source != self.rank {
            transfer
                .targets
                .iter()
                .filter(|target| **target == self.rank)
                .for_each(|_| mail.expect(transfer.source, transfer.len_bytes));
            return Ok(());
        }
        let packed = self.packed(&transfer.source_box, from, transfer.len_bytes)?;
        for target in &transfer.targets {
            mail.send(*target, &packed);
            if *target == self.rank {
                mail.expect(self.rank, packed.len());
            }
        }
        Ok(())
    }

    fn post_term(&self, reduction: &Reduction, from: &[u8], mail: &mut Mail) -> Result<(), Error> {
        for source in &reduction.sources {
            if *source == self.rank {
                let packed = self.packed(&reduction.source_box, from, reduction.len_bytes)?;
                mail.send(reduction.owner, &packed);
            }
            if reduction.owner == self.rank {
                mail.expect(*source, reduction.len_bytes);
            }
        }
        Ok(())
    }

    fn place(&mut self, transfer: &Transfer, came: &mut Came) -> Result<(), Error> {
        if transfer.targets.contains(&self.rank) {
            let bytes = came.next(transfer.source, transfer.len_bytes);
            self.unpack(&transfer.target_box, bytes)?;
        }
        Ok(())
    }

    fn combine(&mut self, reduction: &Reduction, came: &mut Came) -> Result<(), Error> {
        if reduction.owner != self.rank {
            return Ok(());
        }
        let mut value: Vec<u8> = Vec::new();
        for source in &reduction.sources {
            let term = came.next(*source, reduction.len_bytes);
            match value.is_empty() {
                true => value.extend_from_slice(term),
                false => reduce_into(reduction.op, self.dtype, &mut value, term)?,
            }
        }
        if reduction.divisor > 1 {
            finish_average(self.dtype, &mut value, reduction.divisor)?;
        }
        self.unpack(&reduction.target_box, &value)
    }

    fn fill(&mut self, fill: &Fill) -> Result<(), Error> {
        if fill.target != self.rank {
            return Ok(());
        }
        let elements = fill.region.element_count();
        let mut value = vec![0; len_bytes(self.dtype, elements)];
        if fill.value == Identity::One {
            let ones = vec![1; elements];
            cast(DType::U8, self.dtype, &ones, &mut value, Overflow::Native)?;
        }
        self.unpack(&fill.target_box, &value)
    }

    /// A box of `from` in row-major order.
    fn packed(&self, place: &Strided, from: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let mut packed = vec![0; len];
        let contiguous = Strided::contiguous(&place.shape);
        Runs::between(self.dtype, place, &contiguous)?.copy(from, &mut packed)?;
        Ok(packed)
    }

    fn unpack(&mut self, place: &Strided, bytes: &[u8]) -> Result<(), Error> {
        let contiguous = Strided::contiguous(&place.shape);
        Ok(Runs::between(self.dtype, &contiguous, place)?.copy(bytes, &mut self.target)?)
    }
}

/// Messages to all ranks, and how much comes from each.
struct Mail {
    to: Vec<Vec<u8>>,
    expected: Vec<usize>,
}

/// What came from each rank, and how much of it was looked at.
struct Came {
    bytes: Vec<u8>,
    next: Vec<usize>,
}

impl Mail {
    fn new(size: usize) -> Self {
        Self {
            to: vec![Vec::new(); size],
            expected: vec![0; size],
        }
    }

    fn send(&mut self, to: usize, bytes: &[u8]) {
        self.to[to].extend_from_slice(bytes);
    }

    fn expect(&mut self, from: usize, len: usize) {
        self.expected[from] += len;
    }

    fn exchange(self, group: &dyn Communicator) -> Result<Came, Error> {
        let send_lens: Vec<usize> = self.to.iter().map(Vec::len).collect();
        let mut bytes = vec![0; self.expected.iter().sum()];
        group.all_to_all(&self.to.concat(), &send_lens, &mut bytes, &self.expected)?;
        let next = (0..self.expected.len()).map(|rank| self.expected[..rank].iter().sum());
        Ok(Came {
            next: next.collect(),
            bytes,
        })
    }
}

impl Came {
    /// The next message from a rank: messages come in the order of the plan.
    fn next(&mut self, from: usize, len: usize) -> &[u8] {
        let start = self.next[from];
        self.next[from] += len;
        &self.bytes[start..start + len]
    }
}

fn len_bytes(dtype: DType, elements: usize) -> usize {
    (elements * dtype.bits()).div_ceil(8)
}
