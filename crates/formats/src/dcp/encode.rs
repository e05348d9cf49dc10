//! The metadata of a folder that `torch.distributed.checkpoint` loads.

use crate::pickle::Writer;
use crate::torch_zip::torch_name;
use cairn_tensor::DType;

/// Something stored in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredItem {
    /// Its name.
    pub name: String,
    /// Type and shape of a tensor, which is stored whole; `None` for a plain value.
    pub tensor: Option<(DType, Vec<usize>)>,
    /// The data file.
    pub file: String,
    /// Where its archive begins.
    pub offset: u64,
    /// The length of its archive.
    pub len_bytes: u64,
}

/// Writes `.metadata`; `None` if torch has no such element type.
pub fn encode_metadata(items: &[StoredItem]) -> Option<Vec<u8>> {
    let mut pickle = Writer::new();
    pickle.object("torch.distributed.checkpoint.metadata.Metadata");
    pickle.open_dict();
    pickle.str("state_dict_metadata");
    pickle.open_dict();
    for item in items {
        pickle.str(&item.name);
        describe(item, &mut pickle)?;
    }
    pickle.dict();
    pickle.str("planner_data");
    pickle.open_dict();
    for item in items {
        pickle.str(&item.name);
        pickle.mark();
        pickle.str(&item.name);
        pickle.tuple();
    }
    pickle.dict();
    pickle.str("storage_data");
    pickle.open_dict();
    for item in items {
        index(item, &mut pickle);
        place(item, &mut pickle);
    }
    pickle.dict();
    pickle.str("storage_meta");
    pickle.none();
    pickle.str("version");
    pickle.str("1.0.0");
    pickle.dict();
    pickle.build();
    Some(pickle.finish())
}

fn describe(item: &StoredItem, pickle: &mut Writer) -> Option<()> {
    let Some((dtype, shape)) = &item.tensor else {
        pickle.object("torch.distributed.checkpoint.metadata.BytesStorageMetadata");
        return Some(());
    };
    pickle.object("torch.distributed.checkpoint.metadata.TensorStorageMetadata");
    pickle.open_dict();
    pickle.str("properties");
    properties(*dtype, pickle)?;
    pickle.str("size");
    size(shape, pickle);
    pickle.str("chunks");
    pickle.open_list();
    pickle.object("torch.distributed.checkpoint.metadata.ChunkStorageMetadata");
    pickle.open_dict();
    pickle.str("offsets");
    size(&vec![0; shape.len()], pickle);
    pickle.str("sizes");
    size(shape, pickle);
    pickle.dict();
    pickle.build();
    pickle.list();
    pickle.dict();
    pickle.build();
    Some(())
}

/// Type, layout, whether it has a gradient, memory format, whether it is pinned.
fn properties(dtype: DType, pickle: &mut Writer) -> Option<()> {
    pickle.object("torch.distributed.checkpoint.metadata.TensorProperties");
    pickle.mark();
    pickle.global(torch_name(dtype)?);
    pickle.global("torch.serialization._get_layout");
    pickle.mark();
    pickle.str("torch.strided");
    pickle.tuple();
    pickle.call();
    pickle.bool(false);
    pickle.global("torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING");
    pickle.sizes(&[0]);
    pickle.call();
    pickle.bool(false);
    pickle.tuple();
    pickle.build();
    Some(())
}

fn size(sizes: &[usize], pickle: &mut Writer) {
    pickle.global("torch.Size");
    pickle.mark();
    pickle.sizes(sizes);
    pickle.tuple();
    pickle.call();
}

fn index(item: &StoredItem, pickle: &mut Writer) {
    pickle.object("torch.distributed.checkpoint.metadata.MetadataIndex");
    pickle.open_dict();
    pickle.str("fqn");
    pickle.str(&item.name);
    if let Some((_, shape)) = &item.tensor {
        pickle.str("offset");
        size(&vec![0; shape.len()], pickle);
        pickle.str("index");
        pickle.int(0);
    }
    pickle.dict();
    pickle.build();
}

fn place(item: &StoredItem, pickle: &mut Writer) {
    pickle.object("torch.distributed.checkpoint.filesystem._StorageInfo");
    pickle.open_dict();
    pickle.str("relative_path");
    pickle.str(&item.file);
    pickle.str("offset");
    pickle.int(item.offset.into());
    pickle.str("length");
    pickle.int(item.len_bytes.into());
    pickle.dict();
    pickle.build();
}
