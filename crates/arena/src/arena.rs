//! All the memory of one rank.

use crate::memory::Memory;
use crate::sums::Sums;
use crate::tools::Tools;
use crate::{Bucket, Error, Groups, Options, Stage};
use cairn_tensor::DType;
use std::collections::{HashSet, VecDeque};

/// How many buckets of gradients are summed at once, if each has to give its memory back to the next.
const MAX_REDUCTIONS: usize = 2;

/// All the memory of one rank: the parameters of its blocks, their gradients, and what the optimizer remembers.
///
/// Every block has a [`Bucket`], and a pass through it goes like this:
///
/// ```text
/// forward     prefetch(next)   weights(bucket)                 release(bucket)
/// backward    prefetch(next)   weights_and_gradients(bucket)   release(bucket)   ready(bucket, last)
/// at the end  step(hyper)
/// ```
///
/// From [`ready`](Self::ready) on, gradients are summed in the background while backward goes on with other blocks.
///
/// # Collective
/// All ranks of the `dp` group make the same calls for the same buckets in the same order. Bucket numbers are those of the list that the arena
/// was made from.
///
/// # Panics
/// Methods panic if there is no such bucket.
#[derive(Debug)]
pub struct Arena {
    pub(crate) memories: Vec<Memory>,
    pub(crate) groups: Groups,
    pub(crate) options: Options,
    pub(crate) tools: Tools,
    /// The sums that are left to make at a step, in order.
    pub(crate) sums: Vec<Sums>,
    /// Buckets whose gradients are being summed, the oldest first.
    reducing: VecDeque<usize>,
    pub(crate) updates: u64,
}

impl Arena {
    /// The memory for `buckets`, with first values.
    ///
    /// # Collective
    /// # Errors
    /// If parameters cannot be stored as asked, tied ones differ, files cannot be made, or a rank does not come along.
    pub fn new(buckets: Vec<Bucket>, groups: Groups, mut options: Options) -> Result<Self, Error> {
        if !matches!(options.dtype, DType::F32 | DType::Bf16) {
            let dtype = options.dtype;
            return Err(Error::Type { dtype });
        }
        if groups.dp.size() == 1 {
            options.stage = Stage::Nothing;
        }
        let (parts, index) = match options.stage {
            Stage::Nothing => (1, 0),
            _ => (groups.dp.size(), groups.dp.rank()),
        };
        let memory = |bucket| Memory::new(bucket, parts, index, &options);
        let memories: Vec<Memory> = buckets.into_iter().map(memory).collect::<Result<_, _>>()?;
        let mut sums = vec![Sums::partial(&memories, &groups)];
        sums.extend(Sums::tied(&memories, &groups)?);
        let tools = Tools::new(groups.dp.as_ref(), options.pool.clone())?;
        Ok(Self {
            memories,
            groups,
            options,
            tools,
            sums,
            reducing: VecDeque::new(),
            updates: 0,
        })
    }

    /// How many buckets there are.
    pub fn len(&self) -> usize {
        self.memories.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty()
    }

    /// The parameters of a bucket.
    pub fn bucket(&self, bucket: usize) -> &Bucket {
        &self.memories[bucket].bucket
    }

    /// How often parameters were changed: what bias correction counts.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Goes on from `updates` changes, as a checkpoint's value [`UPDATES`](crate::UPDATES) says.
    pub fn set_updates(&mut self, updates: u64) {
        self.updates = updates;
    }

    /// Starts to gather the parameters of the next bucket to be used, if ranks share them out.
    ///
    /// # Collective
    pub fn prefetch(&mut self, bucket: usize) {
        if self.options.stage == Stage::Parameters {
            let Memory {
                parameters, cut, ..
            } = &mut self.memories[bucket];
            parameters.gather(cut, &self.tools);
        }
    }

    /// The parameters of a bucket, until [`release`](Self::release).
    ///
    /// # Collective
    /// # Errors
    /// If a rank does not come along.
    pub fn weights(&mut self, bucket: usize) -> Result<&[f32], Error> {
        self.prefetch(bucket);
        let parameters = &mut self.memories[bucket].parameters;
        parameters.lend(&self.tools)?;
        Ok(parameters.weights())
    }

    /// The parameters of a bucket, as [`weights`](Self::weights), and its gradients, to add to.
    ///
    /// # Collective
    /// # Errors
    /// If a rank does not come along.
    pub fn weights_and_gradients(&mut self, bucket: usize) -> Result<(&[f32], &mut [f32]), Error> {
        self.prefetch(bucket);
        let memory = &mut self.memories[bucket];
        memory.parameters.lend(&self.tools)?;
        let len = memory.bucket.len();
        let gradients = memory.gradients.own(len, &self.tools.buffers);
        Ok((memory.parameters.weights(), gradients))
    }

    /// Gives back what [`weights`](Self::weights) took, to be used for other buckets.
    pub fn release(&mut self, bucket: usize) {
        let parameters = &mut self.memories[bucket].parameters;
        parameters.release(&self.tools.buffers);
    }

    /// Says that the backward of a micro-batch is through with a bucket; if it was the `last` before the step, all ranks' gradients are summed.
    ///
    /// From [`Stage::Gradients`] on they are summed after every micro-batch, so that only this rank's part stays.
    ///
    /// # Collective
    /// # Errors
    /// If a rank does not come along.
    pub fn ready(&mut self, bucket: usize, last: bool) -> Result<(), Error> {
        let keeps_little = self.options.stage >= Stage::Gradients;
        if !last && !keeps_little {
            return Ok(());
        }
        while keeps_little && self.reducing.len() >= MAX_REDUCTIONS {
            let oldest = self.reducing.pop_front().expect("there are some");
            self.memories[oldest].gradients.settle()?;
        }
        let Memory { gradients, cut, .. } = &mut self.memories[bucket];
        gradients.reduce(cut, &self.tools)?;
        self.reducing.push_back(bucket);
        Ok(())
    }

    /// This rank's shards of the sums of all gradients, bucket by bucket.
    pub(crate) fn collect(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        self.reducing.clear();
        let open = |memory: &Memory| memory.gradients.is_open();
        if let Some(bucket) = self.memories.iter().position(open) {
            return Err(Error::NotReady { bucket });
        }
        let buffers = &self.tools.buffers;
        let take = |memory: &mut Memory| {
            let sum = memory.gradients.take()?;
            Ok(sum.unwrap_or_else(|| buffers.zeros(memory.cut.len())))
        };
        self.memories.iter_mut().map(take).collect()
    }

    /// For each bucket and parameter, whether this is the block that stands for all blocks of all stages that have it.
    pub(crate) fn originals(&self) -> Vec<Vec<bool>> {
        let mut seen: HashSet<&str> = HashSet::new();
        let tied = self.groups.tied.as_ref();
        if let Some(tied) = tied.filter(|tied| tied.group.rank() > 0) {
            seen.extend(tied.names.iter().map(String::as_str));
        }
        let slots = self.memories.iter().map(|memory| memory.bucket.slots());
        let first = slots.map(|slots| {
            let names = slots.iter().map(|slot| slot.parameter.name.as_str());
            names.map(|name| seen.insert(name)).collect()
        });
        first.collect()
    }
}
