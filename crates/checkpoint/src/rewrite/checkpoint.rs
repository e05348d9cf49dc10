//! A source as a new checkpoint with another layout.

use super::guard::refuse_input;
use super::journal::{Journal, UNFINISHED_FOLDER};
use super::output::{Frame, OutputFile, OutputItem};
use super::{RewriteOptions, write_files};
use crate::Error;
use crate::checksum::sha256_hex;
use crate::clock::rfc3339;
use crate::commit::{Attempt, Supersedes};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::names::{attempt_name, random_session, step_folder};
use crate::part::{Part, read_head};
use crate::save::{SaveOptions, WriterPlan, asset_entries, put_assets};
use crate::source::Source;
use crate::{lines, run};
use cairn_sharding::TensorSpec;
use cairn_store::Store;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
/// # Crash safety
/// As a save: the whole step is there, or nothing of it. If the options give the rewrite an identity, it can be taken up again, and
/// the files of ranks that had put their parts are kept.
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
    let plans: Vec<WriterPlan> = (0..new.world)
        .map(|rank| WriterPlan::of_rank(&layout, rank, new.world))
        .collect::<Result<_, _>>()?;
    let folder = step_folder(new.step);
    refuse_input(&source.places(), store.as_ref(), &folder, [].into_iter())?;
    if options.dry_run {
        return Ok(report(new, &plans));
    }
    let mut journal = open_journal(store.as_ref(), new, options)?;
    let begun = journal.as_ref().and_then(|journal| journal.attempt());
    let attempt = Attempt {
        step: new.step,
        name: match begun {
            Some(name) => name.to_string(),
            None => attempt_name(&random_session(), new.step, 0),
        },
        world: new.world,
        if_committed: new.save.if_committed,
        launch: None,
        supersedes: Supersedes::Nothing,
    };
    if !attempt.is_committed(store.as_ref())? {
        if let Some(journal) = journal
            .as_mut()
            .filter(|journal| journal.attempt().is_none())
        {
            journal.begin_attempt(&attempt.name)?;
        }
        write_ranks(source, store, new, &attempt, &plans, options)?;
        attempt.commit(store.as_ref())?;
    }
    journal.map_or(Ok(()), Journal::close)?;
    Ok(report(new, &plans))
}

fn report(new: &NewCheckpoint, plans: &[WriterPlan]) -> RewriteReport {
    let images = plans.iter().filter_map(|plan| plan.image.as_ref());
    RewriteReport {
        step: new.step,
        files: images.clone().count(),
        len_bytes: images.map(|image| image.len).sum(),
    }
}

/// The journal of a rewrite that has an identity.
fn open_journal<'a>(
    store: &'a dyn Store,
    new: &NewCheckpoint,
    options: &RewriteOptions,
) -> Result<Option<Journal<'a>>, Error> {
    if options.identity.is_empty() {
        return Ok(None);
    }
    let folder = format!("{UNFINISHED_FOLDER}-{}", step_folder(new.step));
    let identity = sha256_hex(format!("{}\n{new:?}", options.identity).as_bytes());
    Journal::open(store, folder, identity, options.unfinished).map(Some)
}

/// Writes the file and the part of every rank that has no part yet.
fn write_ranks(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    new: &NewCheckpoint,
    attempt: &Attempt,
    plans: &[WriterPlan],
    options: &RewriteOptions,
) -> Result<(), Error> {
    let line = newest_line(store.as_ref())?;
    let done = keep_finished(store.as_ref(), attempt)?;
    let skipped = done
        .iter()
        .filter_map(|rank| plans.get(*rank)?.image.as_ref());
    let skipped = skipped.map(|image| image.len).sum();
    options.progress.fetch_add(skipped, Ordering::Relaxed);
    let left: Vec<usize> = (0..new.world).filter(|rank| !done.contains(rank)).collect();
    for ranks in left.chunks(options.group_len(left.len())) {
        let files = ranks
            .iter()
            .map(|rank| output_file(attempt, *rank, &plans[*rank]));
        let mut files: Vec<OutputFile> = files.flatten().collect();
        let mut crcs = write_files(source, store, &mut files, options)?.into_iter();
        for rank in ranks {
            let crcs = plans[*rank].image.as_ref().and_then(|_| crcs.next());
            let crcs = crcs.unwrap_or_default();
            put_part(
                store.as_ref(),
                new,
                (attempt, line),
                *rank,
                &plans[*rank],
                &crcs,
            )?;
        }
    }
    Ok(())
}

/// The line of the newest step: what is written into a run belongs to what is there.
fn newest_line(store: &dyn Store) -> Result<u64, Error> {
    match run::newest(store, &BTreeSet::new())? {
        Some(step) => lines::line_of_newest(store, step),
        None => lines::newest(store),
    }
}

/// The ranks of an attempt that have put their parts. What others left is deleted: it may not be whole.
fn keep_finished(store: &dyn Store, attempt: &Attempt) -> Result<BTreeSet<usize>, Error> {
    let keys = attempt.keys();
    let listing = store
        .list(&keys.folder)
        .doing(|| format!("list `{}`", keys.folder))?;
    let mut done = BTreeSet::new();
    for meta in &listing {
        let writer = keys.writer_of_part(&meta.key);
        done.extend(writer.filter(|writer| read_head(store, &keys, *writer).is_ok()));
    }
    let mut kept: BTreeSet<String> = [keys.index()].into();
    for rank in &done {
        kept.extend([keys.part(*rank), keys.data(*rank)]);
    }
    let assets = keys.asset("");
    for meta in listing {
        let is_asset = meta.key.starts_with(&assets) && done.contains(&0);
        if !is_asset && !kept.contains(&meta.key) {
            let doing = || format!("delete `{}`", meta.key);
            store.delete(&meta.key).doing(doing)?;
        }
    }
    Ok(done)
}

/// Puts a rank's part, and with the first the side files; `crcs` are those of its file, if it has one.
fn put_part(
    store: &dyn Store,
    new: &NewCheckpoint,
    (attempt, line): (&Attempt, u64),
    rank: usize,
    plan: &WriterPlan,
    crcs: &[u32],
) -> Result<(), Error> {
    let mut part = Part {
        step: new.step,
        attempt: attempt.name.clone(),
        rewrite_of: None,
        writer: rank,
        world: new.world,
        created: rfc3339(SystemTime::now()),
        launch: Some(attempt.name.clone()),
        line,
        parent: None,
        replaces: None,
        layout_hash: plan.hash,
        layout: plan.layout.contributed_by(rank),
        file: plan.file_entry(rank, crcs),
        values: BTreeMap::new(),
        rank_values: BTreeMap::new(),
        tags: Vec::new(),
        assets: BTreeMap::new(),
    };
    if rank == 0 {
        part.values = new.values.clone();
        part.tags = new.save.tags.clone();
        put_assets(store, attempt, &new.save.assets)?;
        part.assets = asset_entries(&new.save.assets);
    }
    part.put(store, &attempt.keys(), crcs, None).map(drop)
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
