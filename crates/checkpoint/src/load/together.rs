//! A load by several processes: each reads its share, and hands the others what they need of it.

use super::deal::{Deal, Share};
use super::fill::{Filling, View};
use super::meeting::Meeting;
use super::note::Part;
use super::parcel::{Needed, Parcel};
use super::watch::{Pause, Watch};
use super::{LoadOptions, LoadReport, MAX_LOAD_BUFFER_BYTES, chunks_of};
use crate::Error;
use crate::checksum::crc32c;
use crate::peers::Peers;
use crate::plan::{FilePlan, LoadCost, Routes, compare, cost, open_files};
use crate::pool::CHUNK_BYTES;
use crate::source::Source;
use crate::target::Wanted;
use crate::workers::Workers;
use cairn_store::AlignedBuffer;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Why a peer has a view of a chunk.
const NEEDED: &str = "only who needs a chunk reads or gets it";

/// Something to read, and the parcel it becomes if others need it.
struct Reading<'a> {
    view: View<'a>,
    parcel: Option<Addressed<'a>>,
}

/// A parcel before it is packed.
struct Addressed<'a> {
    number: usize,
    share: &'a Share,
    /// Who gets a part of it, and the number of that part among all that this peer gets from here.
    to: Vec<(usize, u64)>,
}

/// Everything the threads of a load share.
struct Together<'a, 'f> {
    deal: &'a Deal,
    me: usize,
    filling: &'a Filling<'f>,
    meeting: &'a Meeting<'a>,
    work: Vec<Reading<'a>>,
    workers: Workers,
    received_bytes: AtomicU64,
}

/// Loads `wanted` with the help of `peers`.
pub(crate) fn load(
    source: &dyn Source,
    wanted: &[Wanted],
    filling: &Filling,
    peers: &Peers,
    options: &LoadOptions,
) -> Result<LoadReport, Error> {
    peers.check()?;
    let meeting = Meeting::join(peers)?;
    let result = meet(source, wanted, filling, peers, options, &meeting);
    meeting.finish(result)
}

fn meet(
    source: &dyn Source,
    wanted: &[Wanted],
    filling: &Filling,
    peers: &Peers,
    options: &LoadOptions,
    meeting: &Meeting,
) -> Result<LoadReport, Error> {
    let start = Instant::now();
    let problems = compare(source, wanted, &options.strictness)?;
    let (deal, alone) = Deal::new(source, wanted, problems.usable(wanted), peers)?;
    let routes = Routes::new(
        source,
        alone.iter().map(|target| (*target, &wanted[*target])),
    )?;
    let alone = open_files(source, routes.by_file)?;
    meeting.announce(deal.groups.clone())?;
    let planning = start.elapsed();
    let work = work(&deal, &alone, peers.index);
    let together = Together {
        workers: Workers::new(work.len()),
        deal: &deal,
        me: peers.index,
        filling,
        meeting,
        work,
        received_bytes: AtomicU64::new(0),
    };
    let mut cost = cost(&alone, routes.target_bytes);
    together.add_to(&mut cost);
    let received_bytes = together.run(options.threads)?;
    Ok(LoadReport {
        cost,
        received_bytes,
        problems,
        mended: Vec::new(),
        planning,
        reading: start.elapsed().saturating_sub(planning),
    })
}

/// What this process reads: first what others wait for.
fn work<'a>(deal: &'a Deal, alone: &'a [FilePlan], me: usize) -> Vec<Reading<'a>> {
    let view = |share: &Share| deal.view(share, me).expect(NEEDED);
    let mut sent = [0; u64::BITS as usize];
    let mut work = Vec::new();
    for (number, share) in deal.shared_by(me).enumerate() {
        let others = share.wanted_by.iter().filter(|peer| *peer != me);
        let numbered = others.map(|peer| {
            sent[peer] += 1;
            (peer, sent[peer] - 1)
        });
        let parcel = Addressed {
            number,
            share,
            to: numbered.collect(),
        };
        work.push(Reading {
            view: view(share),
            parcel: Some(parcel),
        });
    }
    let own = deal.own_of(me).map(view);
    let rest = own.chain(alone.iter().flat_map(chunks_of));
    work.extend(rest.map(|view| Reading { view, parcel: None }));
    work
}

impl Together<'_, '_> {
    /// Adds what this process reads and needs of the deal.
    fn add_to(&self, cost: &mut LoadCost) {
        for plan in self
            .deal
            .files
            .iter()
            .filter_map(|views| views[self.me].as_ref())
        {
            let (wanted_bytes, target_bytes) = plan.needs();
            cost.wanted_bytes += wanted_bytes;
            cost.target_bytes += target_bytes;
        }
        let mut files = BTreeSet::new();
        for share in self.deal.shares.iter().filter(|s| s.reader == self.me) {
            let (plan, chunk) = self.deal.view(share, self.me).expect(NEEDED);
            cost.read_bytes += chunk.len as u64;
            cost.reads += 1;
            files.insert(&plan.file.key);
        }
        cost.files += files.len();
    }

    /// Reads and receives everything; returns the bytes received.
    fn run(self, threads: usize) -> Result<u64, Error> {
        let longest = self.work.iter().map(|reading| reading.view.1.len).max();
        // A reader has a parcel beside its buffer, and for each reader there may be one who receives.
        let threads = threads.clamp(1, MAX_LOAD_BUFFER_BYTES / (2 * CHUNK_BYTES));
        let senders: Vec<usize> = (0..self.meeting.count())
            .filter(|s| *s != self.me)
            .collect();
        thread::scope(|scope| {
            for _ in 0..threads.min(self.work.len()) {
                scope.spawn(|| self.read_all(longest.unwrap_or(0)));
            }
            for senders in senders.chunks(senders.len().div_ceil(threads).max(1)) {
                scope.spawn(|| {
                    let received = self.receive_all(senders);
                    self.workers.note(received);
                });
            }
        });
        self.workers.finish()?;
        Ok(self.received_bytes.into_inner())
    }

    fn read_all(&self, longest: usize) {
        let mut buffer = AlignedBuffer::new(longest);
        let mut packed = Vec::new();
        self.workers.each(|index| {
            let reading = &self.work[index];
            let buffer = &mut buffer[..reading.view.1.len];
            match &reading.parcel {
                None => self.filling.read(reading.view, buffer)?,
                Some(parcel) => {
                    let share = parcel.share;
                    let views = share.wanted_by.iter();
                    let views: Vec<View> = views.filter_map(|p| self.deal.view(share, p)).collect();
                    self.filling.read_for(reading.view, &views, buffer)?;
                    self.hand_over(parcel, buffer, &mut packed)?;
                }
            }
            self.meeting.beat(reading.view.1.len)
        });
    }

    /// Packs a chunk for those that need it and hands it over as soon as there is a slot.
    fn hand_over(
        &self,
        Addressed { number, share, to }: &Addressed,
        bytes: &[u8],
        packed: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let needed = |(peer, _): &(usize, u64)| {
            let (plan, chunk) = self.deal.view(share, *peer).expect(NEEDED);
            (*peer, Needed::of(plan, chunk))
        };
        let needs: Vec<(usize, Needed)> = to.iter().map(needed).collect();
        let parcel = Parcel::pack(&needs, bytes, packed);
        let payload: &[u8] = if parcel.whole { bytes } else { packed };
        let part = |(peer, range): &(usize, Range<usize>)| Part {
            peer: *peer,
            number: to.iter().find(|(to, _)| to == peer).map_or(0, |(_, n)| *n),
            offset: range.start as u64,
            len: range.len(),
            crc: crc32c(&payload[range.clone()]),
            whole: parcel.whole,
        };
        let parts = parcel.parts.iter().map(part).collect();
        let mut watches = self.meeting.watches();
        let mut pause = Pause::default();
        while !self.meeting.is_free(*number, &mut watches)? {
            if self.workers.has_failed() {
                return Ok(());
            }
            pause.sleep();
        }
        self.meeting.send(*number, parts, payload)
    }

    /// Takes everything that `senders` read for this process, in the order in which each of them reads it.
    fn receive_all(&self, senders: &[usize]) -> Result<(), Error> {
        let mut inboxes: Vec<_> = senders
            .iter()
            .map(|sender| {
                let shares = self.deal.shared_by(*sender);
                let mine = shares.filter(|share| share.wanted_by.contains(self.me));
                (*sender, mine.enumerate().peekable())
            })
            .collect();
        let mut watches = self.meeting.watches();
        let mut packed = Vec::new();
        let mut pause = Pause::default();
        inboxes.retain_mut(|(_, shares)| shares.peek().is_some());
        while !inboxes.is_empty() && !self.workers.has_failed() {
            let mut idle = true;
            for (sender, shares) in &mut inboxes {
                let Some((number, share)) = shares.peek() else {
                    continue;
                };
                let watch = &mut watches[*sender];
                if let Some(part) = self.meeting.find(watch, *number as u64)? {
                    self.receive(watch, share, &part, &mut packed)?;
                    watch.restart();
                    shares.next();
                    idle = false;
                }
            }
            inboxes.retain_mut(|(_, shares)| shares.peek().is_some());
            match idle {
                true => pause.sleep(),
                false => pause = Pause::default(),
            }
        }
        Ok(())
    }

    /// Takes one part and fills the targets with it.
    fn receive(
        &self,
        watch: &mut Watch,
        share: &Share,
        part: &Part,
        packed: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let view = self.deal.view(share, self.me).expect(NEEDED);
        let needed = match part.whole {
            true => Needed::Whole,
            false => Needed::of(view.0, view.1),
        };
        if part.len != needed.len(view.1.len) {
            let message = "it handed over something else";
            return Err(self.meeting.broken(watch.member, message));
        }
        packed.resize(part.len, 0);
        self.meeting.take(watch, part, packed)?;
        let received = part.len as u64;
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
        self.filling.place(view, packed, &needed)
    }
}
