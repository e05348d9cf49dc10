//! The memory that was handed out.

use super::ClientId;
use cairn_device::SharedMemory;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Memory by number.
#[derive(Debug, Default)]
pub(super) struct Images(BTreeMap<u64, Image>);

#[derive(Debug)]
struct Image {
    memory: Arc<SharedMemory>,
    /// Who has it mapped; `None` when that one is gone.
    client: Option<ClientId>,
    run: String,
}

impl Images {
    pub(super) fn add(&mut self, number: u64, memory: SharedMemory, client: ClientId, run: &str) {
        let image = Image {
            memory: Arc::new(memory),
            client: Some(client),
            run: run.to_string(),
        };
        self.0.insert(number, image);
    }

    pub(super) fn memory(&self, number: u64) -> Option<Arc<SharedMemory>> {
        let image = self.0.get(&number)?;
        Some(image.memory.clone())
    }

    /// What `client` has mapped.
    pub(super) fn of_client(&self, client: ClientId) -> Vec<u64> {
        let images = self.0.iter();
        let own = images.filter(|(_, image)| image.client == Some(client));
        own.map(|(number, _)| *number).collect()
    }

    /// Memory of `len` bytes that `client` has mapped and nothing lies in. What it has of other lengths, it does not need any more.
    pub(super) fn reuse(
        &mut self,
        client: ClientId,
        len: u64,
        used: &BTreeSet<u64>,
    ) -> Option<u64> {
        let mut free = self.of_client(client);
        free.retain(|number| !used.contains(number));
        let fits = |number: &&u64| self.0[*number].memory.len() == len;
        let found = free.iter().find(fits).copied();
        if found.is_none() {
            free.iter().for_each(|number| drop(self.0.remove(number)));
        }
        found
    }

    /// A client is gone, and what it had mapped with it.
    pub(super) fn disown(&mut self, client: ClientId) {
        for image in self.0.values_mut() {
            image.client = image.client.filter(|owner| *owner != client);
        }
    }

    /// Lets memory go that nothing lies in and nobody has mapped.
    pub(super) fn sweep(&mut self, used: &BTreeSet<u64>) {
        self.0
            .retain(|number, image| image.client.is_some() || used.contains(number));
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.0.values().map(|image| image.memory.len()).sum()
    }

    pub(super) fn run_bytes(&self, run: &str) -> u64 {
        let images = self.0.values().filter(|image| image.run == run);
        images.map(|image| image.memory.len()).sum()
    }
}
