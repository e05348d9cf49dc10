//! Copies a rank's pieces to their places in a file image.

use crate::Error;
use crate::assign::WriterItems;
use crate::image::Image;
use crate::layout::Layout;
use crate::overlap::overlaps;
use crate::state::{Outline, place};
use cairn_tensor::Runs;

/// Where one run of an image comes from: `runs` go from bytes of the image to bytes of the tensor's memory.
#[derive(Debug)]
struct Copy {
    begin: u64,
    end: u64,
    runs: Runs,
    /// Index of the tensor in the outline.
    tensor: usize,
}

/// How an image is filled, wherever the memory of the tensors is.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<Copy>);

/// Everything needed to fill any part of an image from a state in host memory.
pub(crate) struct Capture<'a> {
    pub(crate) image: &'a Image,
    pub(crate) copies: &'a Copies,
    /// The memory of each tensor of the outline.
    pub(crate) memory: &'a [&'a [u8]],
}

impl Copies {
    /// Works out the copies from tensors of `outline` to the items of `writer`.
    pub(crate) fn plan(
        layout: &Layout,
        writer: &WriterItems,
        image: &Image,
        outline: &Outline,
    ) -> Result<Self, Error> {
        let mut copies = Vec::new();
        for item in writer.items.iter().filter(|item| item.len_bytes > 0) {
            let name = layout.name(item.tensor);
            let tensor = outline.find(name).expect("the layout is the outline's");
            let held = &outline.tensors[tensor];
            let local_shape = held.spec.local_shape(outline.rank()).unwrap_or_default();
            let local_boxes = held.spec.local_boxes(outline.rank());
            let begin = image.data_start() + item.offset;
            for overlap in overlaps(&item.piece.boxes(), &local_boxes) {
                let memory = place(&overlap.target, &local_shape, held.strides.as_deref());
                let runs = Runs::between(held.spec.dtype(), &overlap.source, &memory).map_err(
                    |source| Error::Copy {
                        name: name.to_string(),
                        source,
                    },
                )?;
                copies.push(Copy {
                    begin,
                    end: begin + item.len_bytes,
                    runs,
                    tensor,
                });
            }
        }
        Ok(Self(copies))
    }
}

impl Capture<'_> {
    /// Fills `out` with the bytes of the image from `offset` on.
    pub(crate) fn fill(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.image.fill_header(offset, out);
        let end = offset + out.len() as u64;
        let copies = &self.copies.0;
        let first = copies.partition_point(|copy| copy.end <= offset);
        let inside = copies[first..].iter().take_while(|copy| copy.begin < end);
        for copy in inside {
            copy.fill(self.memory[copy.tensor], offset, end, out);
        }
        Ok(())
    }
}

impl Copy {
    fn fill(&self, memory: &[u8], offset: u64, end: u64, out: &mut [u8]) {
        let in_item = |position: u64| {
            usize::try_from(position.clamp(self.begin, self.end) - self.begin)
                .expect("an item in memory has a length in memory")
        };
        let range = in_item(offset)..in_item(end);
        for run in self.runs.in_source(range) {
            let at = usize::try_from(self.begin + run.source as u64 - offset)
                .expect("clipped runs lie inside the chunk");
            out[at..at + run.len].copy_from_slice(&memory[run.target..run.target + run.len]);
        }
    }
}
