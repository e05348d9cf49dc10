//! Copies a rank's pieces to their places in a file image.

use crate::Error;
use crate::assign::WriterItems;
use crate::image::Image;
use crate::layout::Layout;
use crate::overlap::overlaps;
use crate::state::{State, place};
use cairn_tensor::Runs;

/// Where one run of an image comes from: `runs` go from bytes of the image to bytes of `memory`.
struct Copy<'a> {
    begin: u64,
    end: u64,
    runs: Runs,
    memory: &'a [u8],
}

/// Everything needed to fill any part of an image from a state in host memory.
pub(crate) struct Capture<'a> {
    image: &'a Image,
    copies: Vec<Copy<'a>>,
}

impl<'a> Capture<'a> {
    /// Works out the copies from `state` to the items of `writer`.
    pub(crate) fn plan(
        layout: &Layout,
        writer: &WriterItems,
        image: &'a Image,
        state: &State<'a>,
    ) -> Result<Self, Error> {
        let mut copies = Vec::new();
        for item in writer.items.iter().filter(|item| item.len_bytes > 0) {
            let name = layout.name(item.tensor);
            let held = &state.tensors[name];
            let local_shape = held.spec.local_shape(state.rank()).unwrap_or_default();
            let local_boxes = held.spec.local_boxes(state.rank());
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
                    memory: held.bytes,
                });
            }
        }
        Ok(Self { image, copies })
    }

    /// Fills `out` with the bytes of the image from `offset` on.
    pub(crate) fn fill(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.image.fill_header(offset, out);
        let end = offset + out.len() as u64;
        let first = self.copies.partition_point(|copy| copy.end <= offset);
        let inside = self.copies[first..]
            .iter()
            .take_while(|copy| copy.begin < end);
        for copy in inside {
            copy.fill(offset, end, out);
        }
        Ok(())
    }
}

impl Copy<'_> {
    fn fill(&self, offset: u64, end: u64, out: &mut [u8]) {
        let in_item = |position: u64| {
            usize::try_from(position.clamp(self.begin, self.end) - self.begin)
                .expect("an item in memory has a length in memory")
        };
        let range = in_item(offset)..in_item(end);
        for run in self.runs.in_source(range) {
            let at = usize::try_from(self.begin + run.source as u64 - offset)
                .expect("clipped runs lie inside the chunk");
            out[at..at + run.len].copy_from_slice(&self.memory[run.target..run.target + run.len]);
        }
    }
}
