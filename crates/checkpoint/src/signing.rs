//! Signatures: proof of who made a checkpoint, down to every byte of it.
//!
//! Checksums find accidents. They do not stop somebody who changes a file and its checksum, and the CRC of a block is easily kept while its
//! bytes change. So a signature covers a *statement* made for it: the seal of `COMMIT`, the seal of every part, and, for every data
//! file, the SHA-256 of a list with the SHA-256 of each of its blocks. With a key required, everything that is read is compared with
//! the statement as it is read: a load reads no more than without a key, but for the lists.
//!
//! ```text
//! key ─▶ SIGNATURE: statement ─┬▶ seal of COMMIT ─▶ layout, values, SHA-256 of side files
//!                              ├▶ seal of 00000.part ─▶ sizes, values of rank 0
//!                              └▶ SHA-256 of 00000.hashes ─▶ SHA-256 of each block of 00000.safetensors
//! ```
//!
//! A copy of a step keeps its signature, and so does a repair. What is written anew (reshard, convert, edit) is signed anew.

mod keys;
mod make;
mod reader;
mod statement;

pub use keys::{PublicKey, SecretKey};
pub use make::{Signed, sign};
pub use statement::SIGNATURE;

pub(crate) use reader::authentic;
pub(crate) use statement::Statement;
