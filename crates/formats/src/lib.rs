//! Other people's files: what is inside, and where its bytes lie.
//!
//! Nothing here moves tensor data, and nothing here runs what it reads. A format answers one question, "which bytes of
//! which file are this piece of this tensor", and the checkpoint engine reads them like its own.
//!
//! | to | use |
//! |---|---|
//! | open a folder or file of any kind | [`open`], [`open_file`] → [`Model`] |
//! | open one kind | [`hf`], [`torch_zip`], [`dcp`], [`megatron`], [`deepspeed`], [`orbax`], [`paddle`] |
//! | read a data file, compressed or not | [`Chunks`] |
//! | parse and write the header of a safetensors file | [`safetensors`] |
//! | read a pickle as inert records | [`pickle`] |
//! | say plain Python values in JSON | [`plain`] |

mod chunks;
mod cursor;
pub mod dcp;
pub mod deepspeed;
mod entries;
mod error;
pub mod hf;
pub mod megatron;
mod model;
mod numbered;
mod ocdbt;
mod open;
pub mod orbax;
pub mod paddle;
pub mod pickle;
pub mod plain;
#[cfg(test)]
mod reading;
pub mod safetensors;
pub mod torch_zip;
mod tree;
mod zarr;
mod zstd;

pub use chunks::{Chunks, MAX_KEPT_BYTES, MAX_KEPT_CHUNKS};
pub use error::Error;
pub use model::{DataFile, Encoding, Form, Model, PieceAt, Tensor};
pub use open::{open, open_file};

/// The key of a file in a folder, `""` being the root.
pub(crate) fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_string(),
        _ => format!("{folder}/{name}"),
    }
}
