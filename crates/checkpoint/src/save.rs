//! One save: capture now, write and commit in the background.

use crate::Error;
use crate::assign::WriterItems;
use crate::capture::{Copies, Flow, Gate, Means, Picture};
use crate::checkpointer::Origin;
use crate::checksum::sha256_hex;
use crate::clock::{Clock, rfc3339};
use crate::commit::{Attempt, IfCommitted, Patience};
use crate::delta::{Base, Bases, Deltas, put_hashes};
use crate::error::StoreContext;
use crate::handshake;
use crate::image::{Image, entries};
use crate::keeper::{Draft, Keeping};
use crate::layout::Layout;
use crate::names::delta_file;
use crate::pace::Pace;
use crate::packed::packed_name;
use crate::part::{AssetEntry, Blocks, FileEntry, Part};
use crate::pool::Pool;
use crate::saving::{Progress, SaveReport};
use crate::stale::History;
use crate::state::{Aliases, Outline, State};
use crate::timeline::{Lane, Recorder, Timeline};
use crate::world::World;
use crate::writer::{Draining, Output, Sink, Written};
use cairn_store::{PutMode, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What can be chosen for one save.
#[derive(Debug, Clone, Default)]
pub struct SaveOptions {
    /// Words kept with the step; retention can keep by them.
    pub tags: Vec<String>,
    /// What to do if the step is committed already.
    pub if_committed: IfCommitted,
    /// Small files that travel with the state, such as a model's `config.json`. Writer 0's are the ones kept.
    pub assets: BTreeMap<String, Vec<u8>>,
}

/// A rank's part of a save plan: what its file will contain. It is reused while the layout stays the same.
#[derive(Debug)]
pub(crate) struct WriterPlan {
    pub(crate) hash: u64,
    pub(crate) layout: Arc<Layout>,
    pub(crate) items: Arc<WriterItems>,
    pub(crate) image: Option<Image>,
}

impl WriterPlan {
    /// The plan of `rank` cut out of the layout of all ranks, for a process that does everybody's work.
    pub(crate) fn of_rank(layout: &Layout, rank: usize, world: usize) -> Result<Self, Error> {
        let own = layout.held_by(rank);
        let hash = own.hash();
        Self::new(own, hash, rank, world)
    }

    pub(crate) fn new(layout: Layout, hash: u64, rank: usize, world: usize) -> Result<Self, Error> {
        layout.check_world(world)?;
        let layout = Arc::new(layout);
        let items = Arc::new(WriterItems::new(&layout, rank)?);
        let image = match items.items.is_empty() {
            true => None,
            false => Some(Image::new(&entries(&layout, &items))?),
        };
        Ok(Self {
            hash,
            layout,
            items,
            image,
        })
    }

    /// What `rank`'s part says of its data file.
    pub(crate) fn file_entry(&self, rank: usize, crcs: &[u32]) -> Option<FileEntry> {
        let image = self.image.as_ref()?;
        Some(FileEntry::new(rank, image.len, image.data_start(), crcs))
    }
}

/// All of a save that does not depend on the bytes: reused for as long as the state has the same outline and aliases.
#[derive(Debug)]
pub(crate) struct PreparedSave {
    outline: Arc<Outline>,
    aliases: Aliases,
    /// The file of this rank, if it writes one.
    pub(crate) picture: Option<Arc<Picture>>,
    pub(crate) writer: WriterPlan,
}

impl PreparedSave {
    /// Plans how a rank of `world` saves states with this outline and these aliases.
    pub(crate) fn new(
        outline: Arc<Outline>,
        aliases: Aliases,
        world: &World,
    ) -> Result<Self, Error> {
        let layout = outline.layout(&aliases);
        let hash = layout.hash();
        let writer = WriterPlan::new(layout, hash, world.rank(), world.size())?;
        let picture = match &writer.image {
            Some(image) => Some(Arc::new(Picture {
                copies: Copies::plan(&writer.layout, &writer.items, image, &outline)?,
                image: image.clone(),
                outline: outline.clone(),
            })),
            None => None,
        };
        Ok(Self {
            outline,
            aliases,
            picture,
            writer,
        })
    }

    /// Whether it is the plan for these.
    pub(crate) fn fits(&self, outline: &Arc<Outline>, aliases: &Aliases) -> bool {
        let same = Arc::ptr_eq(&self.outline, outline) || self.outline == *outline;
        same && self.aliases == *aliases
    }
}

/// Everything the background needs once the state is captured.
pub(crate) struct Job {
    pub(crate) store: Arc<dyn Store>,
    /// Where writers tell each other of failures.
    pub(crate) board: Arc<dyn Store>,
    pub(crate) world: World,
    pub(crate) attempt: Attempt,
    /// Where it is in the history of the run.
    pub(crate) origin: Origin,
    pub(crate) plan: Arc<PreparedSave>,
    pub(crate) planning: Duration,
    pub(crate) options: SaveOptions,
    pub(crate) values: BTreeMap<String, serde_json::Value>,
    pub(crate) rank_values: BTreeMap<String, serde_json::Value>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) recorder: Recorder,
    pub(crate) pool: Arc<Pool>,
    pub(crate) pace: Option<Arc<Pace>>,
    /// Who ends this save if this process does not.
    pub(crate) kept: Option<Box<dyn Keeping>>,
    pub(crate) history: Arc<History>,
    /// What this save may refer to, if it may.
    pub(crate) bases: Option<Arc<Bases>>,
    /// Whether what is written is compressed.
    pub(crate) compress: bool,
    /// How long to wait for the others' parts; not at all if they do not come here.
    pub(crate) patience: Option<Patience>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
}

/// Puts what cannot wait on its way to the store.
pub(crate) fn capture(job: &Job, state: &State, means: Means) -> Result<Option<Flow>, Error> {
    let Some(picture) = &job.plan.picture else {
        means.gate.end();
        return Ok(None);
    };
    let key = job.attempt.keys().data(job.world.rank());
    let (pool, written) = (means.pool.clone(), job.progress.written.clone());
    let writer = Sink::file(Output {
        recorder: Some(job.recorder.clone()),
        gate: Some(means.gate.clone()),
        pace: job.pace.clone(),
        deltas: job.bases.clone().map(|bases| Deltas {
            bases,
            keys: job.attempt.keys(),
            writer: job.world.rank(),
            layout_hash: job.plan.writer.hash,
        }),
        compress: job.compress,
        ..Output::new(job.store.clone(), key, picture.image.len, pool, written)
    });
    Flow::begin(picture.clone(), &state.memory, writer, means).map(Some)
}

impl Job {
    /// Captures and writes what is left, then commits. Failures are told to the other writers.
    pub(crate) fn run(self, flow: Option<Flow>) -> Result<SaveReport, Error> {
        let written = self.finish(flow);
        let result = written.and_then(|written| Ok((self.write_part(&written)?, written)));
        let result = result.map_err(|error| self.explain(error));
        if let Err(error) = &result {
            self.attempt
                .report_failure(self.board.as_ref(), self.world.rank(), error);
        }
        let (file, written) = result?;
        let bytes = file.as_ref().map_or(0, FileEntry::stored_bytes);
        let durable = self.started.elapsed();
        let committing = self.recorder.span(Lane::Commit);
        let committed = self.patience.as_ref().map_or(Ok(()), |patience| {
            let (store, rank) = (self.store.as_ref(), self.world.rank());
            self.attempt.wait(store, rank, patience)
        });
        drop(committing);
        if let Some(bases) = &self.bases {
            // If the step was not committed, the next one takes no risk with what it may have failed for.
            let base = committed.as_ref().ok().zip(file);
            bases.set(base.and_then(|((), file)| self.base(&file, &written)));
        }
        committed?;
        if let Some(kept) = &self.kept {
            kept.committed();
        }
        self.clear_handshake();
        let report = SaveReport {
            step: self.attempt.step,
            attempt: self.attempt.name.clone(),
            len_bytes: bytes,
            planning: self.planning,
            durable,
            committed: self.started.elapsed(),
            uploaded: None,
            unchanged: self.history.compare(&self.plan, written.crcs),
            timeline: Arc::new(self.timeline(bytes)),
        };
        report.timeline.put(self.store.as_ref());
        tracing::info!(step = report.step, rank = self.world.rank(), bytes, elapsed_ms = %report.committed.as_millis(), "checkpoint committed");
        Ok(report)
    }

    /// Captures what is left, and waits until all of it is durable.
    fn finish(&self, flow: Option<Flow>) -> Result<Written, Error> {
        let draining = flow.map(Flow::finish).transpose()?;
        if let Some(kept) = &self.kept {
            kept.captured(&self.draft().encode());
        }
        draining.map_or(Ok(Written::default()), Draining::finish)
    }

    /// An attempt's objects are created once, by one launch: if one is there already, two launches have the same name.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Store {
                source: cairn_store::Error::AlreadyExists { .. },
                ..
            } => Error::SessionReused {
                step: self.attempt.step,
                session: self.world.session().to_string(),
            },
            error => error,
        }
    }

    /// All ranks know of each other by now.
    fn clear_handshake(&self) {
        if let (0, None, Some(launch)) = (
            self.world.rank(),
            self.world.known_launch(),
            &self.origin.launch,
        ) && self.patience.is_some()
        {
            handshake::clear(self.board.as_ref(), self.world.session(), launch);
        }
    }

    fn timeline(&self, len_bytes: u64) -> Timeline {
        let notes = self.pool.notes();
        notes.iter().for_each(|note| self.recorder.note(note));
        Timeline {
            step: self.attempt.step,
            attempt: self.attempt.name.clone(),
            rank: self.world.rank(),
            world: self.world.size(),
            len_bytes,
            ..self.recorder.timeline()
        }
    }

    /// What the next save can refer to.
    fn base(&self, file: &FileEntry, written: &Written) -> Option<Base> {
        let blocks = written.blocks.as_ref()?;
        let place = (self.attempt.step, self.attempt.name.as_str());
        let known = Blocks {
            crcs: written.crcs.clone(),
            map: blocks.delta.as_ref().map(|(_, map)| map.clone()),
        };
        let hash = self.plan.writer.hash;
        Some(Base::new(place, hash, file, known, blocks.hashes.clone()))
    }

    /// What the part says of the data file, whose hashes are put beside it.
    fn file_entry(&self, written: &Written) -> Result<Option<FileEntry>, Error> {
        let rank = self.world.rank();
        let Some(mut file) = self.plan.writer.file_entry(rank, &written.crcs) else {
            return Ok(None);
        };
        if let Some(blocks) = &written.blocks {
            if let Some((delta, _)) = &blocks.delta {
                file.name = delta_file(rank);
                file.delta = Some(delta.clone());
            }
            let (store, keys) = (self.store.as_ref(), self.attempt.keys());
            put_hashes(store, &keys, rank, &file.crcs_sha256, &blocks.hashes)?;
        }
        if let Some(packed) = &written.packed {
            file.name = packed_name(&file.name);
            file.packed = Some(packed.clone());
        }
        Ok(Some(file))
    }

    /// Puts this writer's part, when its data is durable. Returns what it says of the file.
    ///
    /// With the last part the step can be committed, by any writer: who asked to stop before is heard here.
    fn write_part(&self, written: &Written) -> Result<Option<FileEntry>, Error> {
        if self.gate.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let Draft { mut part, assets } = self.draft();
        put_assets(self.store.as_ref(), &self.attempt, &assets)?;
        part.file = self.file_entry(written)?;
        let delta = written.blocks.as_ref().and_then(|b| b.delta.as_ref());
        let map = delta.map(|(_, map)| map);
        let (store, keys) = (self.store.as_ref(), self.attempt.keys());
        let bytes = part.put(store, &keys, &written.crcs, map)?;
        if let Some(kept) = &self.kept {
            kept.written(&bytes);
        }
        Ok(part.file)
    }

    /// This writer's part without checksums, and the small files it is the one to put.
    fn draft(&self) -> Draft {
        let rank = self.world.rank();
        let leader = rank == 0;
        let assets = match leader {
            true => self.options.assets.clone(),
            false => BTreeMap::new(),
        };
        let part = Part {
            step: self.attempt.step,
            attempt: self.attempt.name.clone(),
            rewrite_of: None,
            writer: rank,
            world: self.world.size(),
            created: rfc3339(self.clock.now()),
            launch: self.origin.launch.clone(),
            line: self.origin.line,
            parent: self.origin.parent.clone(),
            replaces: self.origin.replaces.clone(),
            layout_hash: self.plan.writer.hash,
            layout: self.plan.writer.layout.contributed_by(rank),
            file: self.plan.writer.file_entry(rank, &[]),
            values: match leader {
                true => self.values.clone(),
                false => BTreeMap::new(),
            },
            rank_values: self.rank_values.clone(),
            tags: match leader {
                true => self.options.tags.clone(),
                false => Vec::new(),
            },
            assets: asset_entries(&assets),
        };
        Draft { part, assets }
    }
}

/// Puts the small files that travel with a save.
pub(crate) fn put_assets(
    store: &dyn Store,
    attempt: &Attempt,
    assets: &BTreeMap<String, Vec<u8>>,
) -> Result<(), Error> {
    for (name, bytes) in assets {
        let key = attempt.keys().asset(name);
        store
            .put(&key, bytes, PutMode::Create)
            .doing(|| format!("write `{key}`"))?;
    }
    Ok(())
}

/// What a part says of the small files that travel with it.
pub(crate) fn asset_entries(assets: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, AssetEntry> {
    let entry = |bytes: &Vec<u8>| AssetEntry {
        len_bytes: bytes.len() as u64,
        sha256: sha256_hex(bytes),
    };
    let entries = assets.iter();
    entries
        .map(|(name, bytes)| (name.clone(), entry(bytes)))
        .collect()
}
