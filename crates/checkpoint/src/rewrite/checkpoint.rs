//! A source as a new checkpoint with another layout.

use super::output::{Frame, OutputFile, OutputItem};
use super::{RewriteOptions, write_files};
use crate::Error;
use crate::clock::rfc3339;
use crate::commit::Attempt;
use crate::layout::Layout;
use crate::names::{attempt_name, random_session};
use crate::part::Part;
use crate::save::{SaveOptions, WriterPlan, put_assets};
use crate::source::Source;
use cairn_sharding::TensorSpec;
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// What a rewrite did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewriteReport {
    /// The step written.
    pub step: u64,
    /// The number of data files.
    pub files: usize,
    /// Their bytes.
    pub len_bytes: u64,
}

/// What a rewrite makes.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    /// The step.
    pub step: u64,
    /// The number of ranks it is laid out for: each gets a file.
    pub world: usize,
    /// Which tensors, and how each is spread over the ranks.
    pub tensors: BTreeMap<String, TensorSpec>,
    /// Other names of tensors.
    pub aliases: BTreeMap<String, String>,
    /// Plain values.
    pub values: BTreeMap<String, Value>,
    /// Tags, side files, and what to do if the step is committed.
    pub save: SaveOptions,
}

/// Writes tensors of `source` as a new checkpoint of the run in `store`, laid out as `new` says.
///
/// The data streams through a bounded amount of memory; one process does the work of all ranks.
///
/// # Errors
/// If the specs do not fit the source, something is damaged, or the step is committed already.
pub fn rewrite(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    new: &NewCheckpoint,
    options: &RewriteOptions,
) -> Result<RewriteReport, Error> {
    let layout = Layout::new(new.tensors.clone(), new.aliases.clone());
    layout.check_world(new.world)?;
    let attempt = Attempt {
        step: new.step,
        name: attempt_name(&random_session(), new.step, 0),
        world: new.world,
        if_committed: new.save.if_committed,
    };
    attempt.refuse_committed(store.as_ref())?;
    let plans: Vec<WriterPlan> = (0..new.world)
        .map(|rank| WriterPlan::of_rank(&layout, rank, new.world))
        .collect::<Result<_, _>>()?;
    let mut files: Vec<OutputFile> = (0..new.world)
        .filter_map(|rank| output_file(&attempt, rank, &plans[rank]))
        .collect();
    let crcs = write_files(source, store, &mut files, options)?;
    put_parts(store.as_ref(), new, &attempt, &plans, crcs)?;
    attempt.commit(store.as_ref())?;
    Ok(RewriteReport {
        step: new.step,
        files: files.len(),
        len_bytes: files.iter().map(|file| file.len).sum(),
    })
}

/// Puts every rank's part; `crcs` has a table for each rank that has a file.
fn put_parts(
    store: &dyn Store,
    new: &NewCheckpoint,
    attempt: &Attempt,
    plans: &[WriterPlan],
    crcs: Vec<Vec<u32>>,
) -> Result<(), Error> {
    let mut crcs = crcs.into_iter();
    let mut assets = put_assets(store, attempt, &new.save.assets)?;
    let created = rfc3339(SystemTime::now());
    for (rank, plan) in plans.iter().enumerate() {
        let crcs = plan.image.as_ref().and_then(|_| crcs.next());
        let crcs = crcs.unwrap_or_default();
        let first = rank == 0;
        let part = Part {
            step: new.step,
            attempt: attempt.name.clone(),
            writer: rank,
            world: new.world,
            created: created.clone(),
            layout_hash: plan.hash,
            layout: plan.layout.contributed_by(rank),
            file: plan.file_entry(rank, &crcs),
            values: if first {
                new.values.clone()
            } else {
                BTreeMap::new()
            },
            rank_values: BTreeMap::new(),
            tags: if first {
                new.save.tags.clone()
            } else {
                Vec::new()
            },
            assets: std::mem::take(&mut assets),
        };
        part.put(store, &attempt.keys(), &crcs)?;
    }
    Ok(())
}

fn output_file(attempt: &Attempt, rank: usize, plan: &WriterPlan) -> Option<OutputFile> {
    let image = plan.image.clone()?;
    let items = plan.items.items.iter().map(|item| {
        let spec = plan.layout.spec(item.tensor);
        OutputItem {
            name: plan.layout.name(item.tensor).to_string(),
            dtype: spec.dtype(),
            shape: spec.shape().to_vec(),
            piece: item.piece.clone(),
            begin: image.data_start() + item.offset,
            len: item.len_bytes,
            checksum: None,
        }
    });
    Some(OutputFile {
        key: attempt.keys().data(rank),
        items: items.collect(),
        len: image.len,
        frames: vec![Frame::header(image)],
    })
}
