//! What a capture makes of a state: an image, and where its bytes come from.

use super::copies::Copies;
use crate::image::Image;
use crate::state::Outline;
use std::sync::Arc;

/// An image of a state: a data file, or the source of running averages.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) image: Image,
    pub(crate) copies: Copies,
    pub(crate) outline: Arc<Outline>,
}

impl Picture {
    /// The name of a tensor, by its number in the outline.
    pub(crate) fn tensor_name(&self, tensor: usize) -> String {
        self.outline.name(tensor).to_string()
    }
}
