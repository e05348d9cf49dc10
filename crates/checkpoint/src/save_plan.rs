//! A save before it happens: which file each writer makes, and how large it is.

use crate::Error;
use crate::layout::Layout;
use crate::save::WriterPlan;

/// What every writer of a save will write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavePlan {
    /// By writer, those without a file included.
    pub writers: Vec<PlannedWriter>,
}

/// What one writer will write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedWriter {
    /// The pieces of tensors in its file.
    pub items: usize,
    /// Their bytes.
    pub data_bytes: u64,
    /// The length of the file, its header included; 0 if it writes none.
    pub len_bytes: u64,
}

impl PlannedWriter {
    /// Plans what `rank` will write, as that rank does for itself: its cost does not depend on the number of ranks.
    ///
    /// # Errors
    /// As [`SavePlan::new`].
    pub fn new(layout: &Layout, rank: usize, world: usize) -> Result<Self, Error> {
        let plan = WriterPlan::of_rank(layout, rank, world)?;
        Ok(Self {
            items: plan.items.items.len(),
            data_bytes: plan.items.len_bytes(),
            len_bytes: plan.image.map_or(0, |image| image.len),
        })
    }
}

impl SavePlan {
    /// Plans a save of `layout` by `world` ranks. No rank needs to tell another anything for it.
    ///
    /// # Errors
    /// If a tensor lives on a rank outside the world, or cannot be saved as it is.
    pub fn new(layout: &Layout, world: usize) -> Result<Self, Error> {
        layout.check_world(world)?;
        let plan = |rank| PlannedWriter::new(layout, rank, world);
        let writers = (0..world).map(plan).collect::<Result<_, Error>>()?;
        Ok(Self { writers })
    }

    /// The bytes of all files.
    pub fn len_bytes(&self) -> u64 {
        self.writers.iter().map(|writer| writer.len_bytes).sum()
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.writers.iter().filter(|w| w.len_bytes > 0).count()
    }

    /// The most data one writer has, as a multiple of the mean: 1 is perfect.
    pub fn balance(&self) -> f64 {
        let all = || self.writers.iter().map(|writer| writer.data_bytes);
        let (most, total) = (all().max().unwrap_or(0), all().sum::<u64>());
        match total {
            0 => 1.0,
            total => most as f64 * self.writers.len() as f64 / total as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    //! The plan of a save is compared with what is known of the assignment.

    use super::*;
    use cairn_sharding::{Mesh, TensorSpec};

    fn layout(mesh: &str, spec: &str) -> Layout {
        let mesh: Mesh = mesh.parse().unwrap();
        let spec = TensorSpec::parse(&mesh, spec).unwrap();
        Layout::new([("w".to_string(), spec)].into(), Default::default())
    }

    #[test]
    fn replicas_share_the_bytes_evenly() {
        let plan = SavePlan::new(&layout("dp=4", "f32[4096, 4096]"), 4).unwrap();
        let bytes: Vec<u64> = plan.writers.iter().map(|w| w.data_bytes).collect();
        assert_eq!(bytes, [16 << 20; 4]);
        assert_eq!((plan.files(), plan.balance()), (4, 1.0));
    }

    #[test]
    fn ranks_without_elements_write_no_file() {
        let plan = SavePlan::new(&layout("tp=4", "f32[2@tp]"), 4).unwrap();
        assert_eq!(plan.files(), 2);
        assert_eq!(plan.balance(), 2.0);
        assert_eq!(plan.writers[3].len_bytes, 0);
    }

    #[test]
    fn a_world_too_small_is_refused() {
        assert!(SavePlan::new(&layout("tp=4", "f32[2@tp]"), 2).is_err());
    }

    #[test]
    fn nothing_to_save_is_in_balance() {
        let plan = SavePlan::new(&Layout::default(), 1).unwrap();
        assert_eq!((plan.len_bytes(), plan.balance()), (0, 1.0));
    }
}
