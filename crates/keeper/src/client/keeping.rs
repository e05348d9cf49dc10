//! A snapshot in a keeper's memory, as the save that fills it holds it.

use super::Link;
use crate::message::Request;
use cairn_checkpoint::keeper::{Keeping, Snapshot};
use cairn_device::Buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A snapshot's number, and its memory.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) snapshot: u64,
    pub(super) buffers: Vec<Buffer>,
    pub(super) notes: Vec<String>,
}

/// A snapshot that is being filled, written or committed.
#[derive(Debug)]
pub(super) struct Image {
    link: Arc<Link>,
    /// The connection its number came through.
    line: u64,
    opened: Opened,
    committed: AtomicBool,
}

impl Image {
    pub(super) fn new(link: Arc<Link>, line: u64, opened: Opened) -> Self {
        Self {
            link,
            line,
            opened,
            committed: AtomicBool::new(false),
        }
    }

    /// Whether there is memory for every byte.
    pub(super) fn is_whole(&self, snapshot: &Snapshot) -> bool {
        let len: usize = self.opened.buffers.iter().map(|buffer| buffer.len()).sum();
        len as u64 == snapshot.room_bytes()
    }

    fn tell(&self, request: &Request, body: &[u8]) {
        self.link.tell(self.line, request, body);
    }
}

impl Keeping for Image {
    fn take_image(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.opened.buffers)
    }

    fn notes(&self) -> Vec<String> {
        self.opened.notes.clone()
    }

    fn captured(&self, draft: &[u8]) {
        let snapshot = self.opened.snapshot;
        self.tell(&Request::Captured { snapshot }, draft);
    }

    fn written(&self, part: &[u8]) {
        let snapshot = self.opened.snapshot;
        self.tell(&Request::Written { snapshot }, part);
    }

    fn committed(&self) {
        let snapshot = self.opened.snapshot;
        self.committed.store(true, Ordering::Relaxed);
        self.tell(&Request::Committed { snapshot }, &[]);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.committed.load(Ordering::Relaxed) {
            let snapshot = self.opened.snapshot;
            self.tell(&Request::Abandon { snapshot }, &[]);
        }
    }
}
