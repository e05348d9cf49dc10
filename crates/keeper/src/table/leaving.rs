//! What becomes of snapshots when their writers leave or die.

use super::{ClientId, Orphaned, Stage, Table};

impl Table {
    /// A client has left, though its process lives and ends its saves itself. If it dies before it has, they are orphans then.
    pub(crate) fn cut(&mut self, client: ClientId) {
        for entry in self.entries.values_mut() {
            entry.readers.remove(&client);
            if entry.client == Some(client) {
                entry.is_cut = entry.is_pending();
                entry.client = entry.client.filter(|_| entry.is_pending());
            }
        }
        self.forget_unfinished();
        self.images.disown(client);
        self.retire();
    }

    /// Whether a client has saves to end.
    pub(crate) fn has_pending(&self, client: ClientId) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.client == Some(client) && entry.is_pending())
    }

    /// A client is gone. Returns what it captured and nobody has made safe.
    pub(crate) fn gone(&mut self, client: ClientId) -> Vec<Orphaned> {
        let (mut orphans, now) = (Vec::new(), self.clock.elapsed());
        for (snapshot, entry) in &mut self.entries {
            entry.readers.remove(&client);
            if entry.client != Some(client) {
                continue;
            }
            entry.client = None;
            if entry.is_pending() {
                let stage = match entry.part {
                    Some(_) => Stage::Persisting,
                    None => Stage::Sealing,
                };
                entry.enter(stage, now);
                orphans.push(*snapshot);
            }
        }
        self.forget_unfinished();
        self.images.disown(client);
        self.retire();
        orphans
            .into_iter()
            .filter_map(|snapshot| self.orphaned(snapshot))
            .collect()
    }

    /// Forgets what was never complete and never will be: it is of no use to anybody.
    fn forget_unfinished(&mut self) {
        self.entries
            .retain(|_, entry| entry.client.is_some() || !matches!(entry.stage, Stage::Filling));
    }
}
