//! What killed trainers left in a run: attempts that nobody will ever finish.
//!
//! The claims that a lease follows name their launches, and attempts are named for theirs. So it is known whose an attempt is, and whether that
//! launch is dead: no age has to be guessed. An attempt without all of its parts was never committed, so nothing refers to it.

use super::Lease;
use super::claims::{Beat, Claim, beat_key, claim_key, clear, numbers, read};
use crate::Error;
use crate::error::StoreContext;
use crate::names::{AttemptKeys, attempt_name};
use crate::run::{all_steps, each_step};
use crate::verify::unfinished;
use cairn_store::Store;
use std::collections::BTreeSet;

/// How many attempts of one launch at one step are looked for.
const ATTEMPTS: u64 = 16;

impl Lease {
    /// Removes attempts that the trainers before this one were writing when they died, and returns how many. Those of a trainer that may live, that
    /// have all their parts, or that anybody else began, stay.
    ///
    /// # Errors
    /// If the run cannot be looked through, or something cannot be deleted. Doing it again is harmless.
    pub fn clear_leftovers(&self) -> Result<usize, Error> {
        let store = self.held.store.as_ref();
        let dead = self.dead_launches()?;
        let mut cleared = 0;
        if !dead.is_empty() {
            let steps = all_steps(store)?;
            let found = each_step(store, &steps, |step| leftovers(store, step, &dead))?;
            for folder in found.into_iter().flatten() {
                delete(store, &folder)?;
                cleared += 1;
            }
            // What they left half-written is in no listing.
            store.sweep("").doing(|| "sweep the run".into())?;
        }
        clear(store, self.held.number);
        Ok(cleared)
    }

    /// The launches that had the run before, did not say that they left it, and are known to be dead.
    fn dead_launches(&self) -> Result<Vec<String>, Error> {
        let (store, here) = (self.held.store.as_ref(), self.held.claim.process.as_ref());
        let mut dead = Vec::new();
        for number in numbers(store)? {
            if number >= self.held.number {
                continue;
            }
            let beat: Option<Beat> = read(store, &beat_key(number))?;
            let Some(claim) = read::<Claim>(store, &claim_key(number))? else {
                continue;
            };
            let sight = claim.process.as_ref().zip(here);
            let is_dead = sight.is_some_and(|(it, here)| it.is_alive(here) == Some(false));
            if is_dead && !beat.is_some_and(|beat| beat.over) {
                dead.push(claim.launch);
            }
        }
        Ok(dead)
    }
}

/// The folders of attempts at `step` that one of these launches did not finish.
fn leftovers(store: &dyn Store, step: u64, dead: &[String]) -> Result<Vec<String>, Error> {
    let theirs = |launch: &String| {
        let launch = launch.clone();
        (0..ATTEMPTS).map(move |count| attempt_name(&launch, step, count))
    };
    let theirs: BTreeSet<String> = dead.iter().flat_map(theirs).collect();
    let attempts = unfinished(store, step)?.into_iter();
    let attempts = attempts.filter(|it| theirs.contains(&it.attempt) && !it.is_complete());
    let folders = attempts.map(|it| AttemptKeys::new(step, &it.attempt).folder);
    Ok(folders.collect())
}

fn delete(store: &dyn Store, folder: &str) -> Result<(), Error> {
    let listing = store.list(folder).doing(|| format!("list `{folder}`"))?;
    for key in listing.into_iter().map(|meta| meta.key) {
        store.delete(&key).doing(|| format!("delete `{key}`"))?;
    }
    tracing::info!(folder, "removed what a killed trainer left");
    Ok(())
}
