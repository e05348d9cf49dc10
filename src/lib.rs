#![doc = include_str!("../README.md")]

pub use cairn_arena as arena;
pub use cairn_checkpoint as checkpoint;
pub use cairn_collectives as collectives;
pub use cairn_data as data;
pub use cairn_device as device;
pub use cairn_formats as formats;
pub use cairn_keeper as keeper;
pub use cairn_kernels as kernels;
pub use cairn_merge as merge;
pub use cairn_model as model;
#[cfg(feature = "mpi")]
pub use cairn_mpi as mpi;
pub use cairn_plan as plan;
pub use cairn_recipe as recipe;
pub use cairn_reshard as reshard;
pub use cairn_sharding as sharding;
pub use cairn_store as store;
pub use cairn_tensor as tensor;
pub use cairn_train as train;
