//! One try to bring an attempt to the durable tier; any number of tries come to the same.

use super::{Origin, Route, Upload, marks};
use crate::Error;
use crate::checkpoint::StoredFile;
use crate::checksum::sha256_hex;
use crate::commit::{Attempt, IfCommitted, Patience};
use crate::copies::{Checksums, Copying, is_absent, read_manifest};
use crate::delta::{References, pin};
use crate::error::StoreContext;
use crate::lines;
use crate::manifest::Manifest;
use crate::names::{AttemptKeys, step_folder};
use crate::packed;
use crate::part::{Part, parse_whole};
use crate::tags::is_tag;
use cairn_store::{Error as StoreError, PutMode, Store};
use std::time::Duration;

impl Upload {
    /// Uploads what is not there yet, and commits when all writers' files are. Whether the step is durable now.
    ///
    /// # Crash safety
    /// The durable tier sees a commit of an ordinary save.
    pub(super) fn carry(&self, route: &Route) -> Result<bool, Error> {
        match self.try_to_carry(route) {
            // Another attempt came while this one was on its way: the younger counts.
            Err(Error::StepTaken { .. }) if self.origin != Origin::Saved => {
                self.try_to_carry(route)
            }
            carried => carried,
        }
    }

    fn try_to_carry(&self, route: &Route) -> Result<bool, Error> {
        let (durable, keys) = (route.tiers.durable().as_ref(), self.attempt.keys());
        if let Some(attempt) = self.for_durable(route)?
            // Put by an earlier try, perhaps, that then failed to make it durable.
            && !attempt.is_safe(durable)?
        {
            for writer in &self.writers {
                upload_writer(route, &keys, *writer)?;
            }
            upload_tags(route, self.step())?;
            if !self.commit(&attempt, route)? {
                return Ok(false);
            }
        }
        marks::mark(&route.tiers, &keys);
        Ok(true)
    }

    /// The attempt as the durable tier should see it. What an earlier launch left replaces an older attempt there; for a younger one
    /// it is not needed any more, and is none.
    fn for_durable(&self, route: &Route) -> Result<Option<Attempt>, Error> {
        let Origin::Left { line, created } = &self.origin else {
            return Ok(Some(self.attempt.clone()));
        };
        let (step, name) = (self.step(), &self.attempt.name);
        // Clocks differ, lines only grow.
        let age = |there: &Manifest| {
            (there.line, &there.created).cmp(&(line.unwrap_or(there.line), created))
        };
        let if_committed = match read_manifest(route.tiers.durable().as_ref(), step) {
            Ok((there, _)) if there.attempt == *name => IfCommitted::Refuse,
            Ok((there, _)) if age(&there).is_lt() => IfCommitted::Replace,
            // Times are whole seconds. Of two attempts of one second, the one that stands on a fast tier that all share came later: what is
            // durable went through it. The tier of one node may have missed what came later.
            Ok((there, _)) if age(&there).is_eq() && !route.tiers.is_per_node() => {
                IfCommitted::Replace
            }
            Ok((there, _)) => {
                let younger = there.attempt;
                tracing::warn!(
                    step,
                    attempt = name,
                    younger,
                    "not uploaded: the durable tier has a younger attempt at the step"
                );
                return Ok(None);
            }
            Err(Error::Incomplete { .. } | Error::Deleted { .. }) => IfCommitted::Refuse,
            Err(error) if error.is_damage() => IfCommitted::Replace,
            Err(error) => return Err(error),
        };
        Ok(Some(Attempt {
            if_committed,
            ..self.attempt.clone()
        }))
    }

    /// Commits on the durable tier once all parts are there; waits for them if their writers are at it.
    fn commit(&self, attempt: &Attempt, route: &Route) -> Result<bool, Error> {
        let durable = route.tiers.durable().as_ref();
        if self.origin == Origin::Saved {
            return self.wait_for_others(attempt, route).map(|()| true);
        }
        // Whoever uploads last finds nothing missing.
        if attempt.is_complete(durable)? {
            attempt.commit(durable)?;
            return Ok(true);
        }
        attempt.is_safe(durable)
    }

    /// Waits for the files of the other ranks, and uploads those of ranks that do not come where this one has them, too: on a fast tier that all share.
    /// A rank that is only slow finds them there.
    fn wait_for_others(&self, attempt: &Attempt, route: &Route) -> Result<(), Error> {
        let (durable, patience) = (route.tiers.durable().as_ref(), &route.patience);
        let missing = match attempt.wait(durable, route.rank, patience) {
            Err(Error::WritersMissing { missing, .. })
                if !route.tiers.is_per_node()
                    && !patience.cutoff.is_over(patience.clock.as_ref()) =>
            {
                missing
            }
            waited => return waited,
        };
        let step = self.step();
        tracing::warn!(
            step,
            ?missing,
            "the files of ranks that did not come are uploaded in their place"
        );
        for writer in missing {
            upload_writer(route, &attempt.keys(), writer)?;
        }
        let at_once = Patience {
            timeout: Duration::ZERO,
            ..patience.clone()
        };
        attempt.wait(durable, route.rank, &at_once)
    }
}

/// Uploads the files of one writer: its part last.
fn upload_writer(route: &Route, keys: &AttemptKeys, writer: usize) -> Result<(), Error> {
    let (fast, durable) = (route.tiers.fast(), route.tiers.durable());
    let key = keys.part(writer);
    let there = durable.head(&key);
    if there.doing(|| format!("look for `{key}`"))?.is_some() {
        return Ok(());
    }
    let bytes = fast.get(&key).doing(|| format!("read `{key}`"))?;
    let (read, blocks) = parse_whole(&key, &bytes)?;
    upload_assets(route, keys, &read.part)?;
    if read.part.line > 0 {
        lines::copy(fast.as_ref(), durable.as_ref(), read.part.line)?;
    }
    if let Some(file) = &read.part.file {
        let own = StoredFile::all(read.part.step, keys, file, &blocks).swap_remove(0);
        if let Some(delta) = &file.delta {
            hold_bases(durable.as_ref(), keys, &read.part, &delta.bases)?;
        }
        if own.exists() {
            upload_file(route, &own, &Checksums::of(file, &blocks, 0))?;
        }
    }
    upload_timeline(route, &keys.timeline(writer));
    match durable.put(&key, &bytes, PutMode::Create) {
        Err(StoreError::AlreadyExists { .. }) => Ok(()),
        put => put.doing(|| format!("upload `{key}`")),
    }
}

fn upload_assets(route: &Route, keys: &AttemptKeys, part: &Part) -> Result<(), Error> {
    for (name, entry) in &part.assets {
        let key = keys.asset(name);
        let bytes = route.tiers.fast().get(&key);
        let bytes = bytes.doing(|| format!("read `{key}`"))?;
        if sha256_hex(&bytes) != entry.sha256 {
            let reason = "its bytes are not the ones that were saved";
            return Err(Error::damaged(key, reason));
        }
        let put = route.tiers.durable().put(&key, &bytes, PutMode::Replace);
        put.doing(|| format!("upload `{key}`"))?;
    }
    Ok(())
}

/// Keeps the files that a delta refers to on the durable tier.
///
/// The order is that of a save: the pin first, then the look. Whatever holds a file now, a pruner that takes it away finds the pin.
fn hold_bases(
    durable: &dyn Store,
    keys: &AttemptKeys,
    part: &Part,
    bases: &[String],
) -> Result<(), Error> {
    let files: Vec<&str> = bases.iter().map(String::as_str).collect();
    match pin::put(durable, keys, part.writer, &files) {
        // An earlier try left it.
        Err(Error::Store {
            source: StoreError::AlreadyExists { .. },
            ..
        }) => {}
        put => put?,
    }
    let held = References::committed(durable)?;
    let lost = |file: &&String| !held.contains(*file);
    let missing: Vec<String> = bases.iter().filter(lost).cloned().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::BasesGone {
            step: part.step,
            missing,
        }),
    }
}

/// Uploads a data file, unless it is there; another rank may be at it, too.
fn upload_file(route: &Route, file: &StoredFile, crcs: &Checksums) -> Result<(), Error> {
    if is_there(route, file, crcs)? {
        return Ok(());
    }
    match copy_file(route, file, crcs) {
        Err(Error::Store {
            source: StoreError::AlreadyExists { .. },
            ..
        }) if is_there(route, file, crcs)? => Ok(()),
        copied => copied,
    }
}

/// Copies a data file, every block checked on the way, so that damage does not spread.
fn copy_file(route: &Route, file: &StoredFile, crcs: &Checksums) -> Result<(), Error> {
    let key = &file.key;
    let (fast, durable) = (route.tiers.fast().as_ref(), route.tiers.durable());
    let from = packed::open(fast, key)?;
    file.check(from.as_ref())?;
    let copying = Copying {
        key,
        from: from.as_ref(),
        crcs,
        pace: route.pace.as_deref(),
    };
    copying.write(fast, durable.as_ref(), key)
}

/// Whether the durable tier has a data file. One without a part is not trusted: it is read, and deleted if it is not whole.
fn is_there(route: &Route, file: &StoredFile, crcs: &Checksums) -> Result<bool, Error> {
    let (key, durable) = (&file.key, route.tiers.durable());
    let checked = packed::open(durable.as_ref(), key).and_then(|from| {
        file.check(from.as_ref())?;
        let copying = Copying {
            key,
            from: from.as_ref(),
            crcs,
            pace: None,
        };
        copying.check()
    });
    match checked {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) if error.is_damage() => {
            durable.delete(key).doing(|| format!("delete `{key}`"))?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Brings the tags of a step along, before it is committed: a pruning may have taken those for leftovers that came before the step.
fn upload_tags(route: &Route, step: u64) -> Result<(), Error> {
    let (fast, durable) = (route.tiers.fast(), route.tiers.durable());
    let folder = step_folder(step);
    let beside = fast.list_files(&folder);
    let beside = beside.doing(|| format!("list `{folder}`"))?;
    let keys = beside.into_iter().map(|meta| meta.key);
    for key in keys.filter(|key| is_tag(key)) {
        let bytes = fast.get(&key).doing(|| format!("read `{key}`"))?;
        match durable.put(&key, &bytes, PutMode::Create) {
            Err(StoreError::AlreadyExists { .. }) => {}
            put => put.doing(|| format!("upload `{key}`"))?,
        }
    }
    Ok(())
}

/// Nobody depends on a timeline.
fn upload_timeline(route: &Route, key: &str) {
    let copied = route.tiers.fast().get(key);
    let copied = copied.and_then(|bytes| {
        let durable = route.tiers.durable();
        durable.put(key, &bytes, PutMode::Replace)
    });
    if let Err(error) = copied {
        tracing::debug!(key, %error, "the timeline of a save was not uploaded");
    }
}
