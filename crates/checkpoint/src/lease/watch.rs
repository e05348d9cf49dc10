//! Looks at the trainer that has a run, until it is known whether it lives.

use super::claims::{Beat, Claim, beat_key, claim_key, numbers, read};
use super::{LOOK, LeaseRequest, PARTING, SILENCE};
use crate::Error;
use crate::error::StoreContext;
use cairn_store::Store;
use std::sync::atomic::Ordering;

/// Waits until the holder of claim `number` is over or dead.
pub(super) fn await_end(
    store: &dyn Store,
    number: u64,
    own: &Claim,
    request: &LeaseRequest<'_>,
) -> Result<(), Error> {
    let clock = request.clock.as_ref();
    let look = || read::<Beat>(store, &beat_key(number));
    // One that makes no sense is watched like any other.
    let key = claim_key(number);
    let holder: Option<Claim> = read(store, &key)?;
    let is_there = || store.head(&key).doing(|| format!("look for `{key}`"));
    if holder.is_none() && is_there()?.is_none() {
        // A later one cleared it away.
        return Ok(());
    }
    let mut beat = look()?;
    if beat.is_some_and(|beat| beat.over) {
        return Ok(());
    }
    let in_use = |seen: String| Error::RunInUse {
        url: store.url(),
        holder: holder
            .as_ref()
            .map_or("another process".into(), Claim::text),
        launch: holder
            .as_ref()
            .map_or(String::new(), |it| it.launch.clone()),
        seen,
    };
    let process = holder.as_ref().and_then(|holder| holder.process.as_ref());
    match process.zip(own.process.as_ref()) {
        None => {}
        Some((process, here)) => match process.is_alive(here) {
            Some(true) => return Err(in_use("it is running".into())),
            Some(false) => return Ok(()),
            None => {}
        },
    }
    let text = holder
        .as_ref()
        .map_or("another process".into(), Claim::text);
    tracing::warn!(
        "the run belongs to {text}: watching for {} s whether it lives",
        SILENCE.as_secs()
    );
    let (mut since, mut changed) = (clock.elapsed(), false);
    loop {
        let silent = clock.elapsed().saturating_sub(since);
        if silent >= SILENCE {
            return Ok(());
        }
        if changed || request.stop.load(Ordering::Relaxed) {
            let seconds = silent.as_secs();
            return Err(in_use(match changed {
                true => format!("it gave a sign of life {seconds} s ago"),
                false => format!(
                    "it gave no sign of life for {seconds} s, and {} are needed",
                    SILENCE.as_secs()
                ),
            }));
        }
        clock.sleep(LOOK);
        let now = look()?;
        if now.is_some_and(|now| now.over) {
            return Ok(());
        }
        if now != beat {
            (beat, since, changed) = (now, clock.elapsed(), true);
        }
    }
}

/// Waits until the trainers that had the run before claim `number` have ended, or for so long that they seem dead.
pub(super) fn await_parting(
    store: &dyn Store,
    number: u64,
    own: &Claim,
    request: &LeaseRequest<'_>,
) -> Result<(), Error> {
    let clock = request.clock.as_ref();
    let begun = clock.elapsed();
    for old in numbers(store)?.into_iter().filter(|old| *old < number) {
        let holder: Option<Claim> = read(store, &claim_key(old))?;
        let process = holder.and_then(|holder| holder.process);
        loop {
            let beat: Option<Beat> = read(store, &beat_key(old))?;
            let sight = process.as_ref().zip(own.process.as_ref());
            let is_dead = sight.is_some_and(|(it, here)| it.is_alive(here) == Some(false));
            let is_over = is_dead || beat.is_some_and(|beat| beat.over);
            let is_late = clock.elapsed().saturating_sub(begun) >= PARTING;
            if is_over || is_late || request.stop.load(Ordering::Relaxed) {
                break;
            }
            clock.sleep(LOOK);
        }
    }
    Ok(())
}
