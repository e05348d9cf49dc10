//! Keys as users name them: by themselves, by a file, or by the environment.

use crate::error::Error;
use cairn::checkpoint::signing::{PublicKey, SecretKey};
use cairn::checkpoint::{Options, split_path};
use cairn::store;

/// The variable that names the key that all steps must be signed with.
const VARIABLE: &str = "CAIRN_REQUIRE_KEY";

/// The public key that `text` is, or that lies in the file it names.
pub(crate) fn public(text: &str) -> Result<PublicKey, Error> {
    match text.parse() {
        Ok(key) => Ok(key),
        // Not a file, most probably, and nothing to print.
        Err(error) if text.starts_with("cairn-") => Err(error.into()),
        Err(_) => Ok(read(text)?.parse()?),
    }
}

/// The secret key in a file.
pub(crate) fn secret(file: &str) -> Result<SecretKey, Error> {
    Ok(read(file)?.parse()?)
}

/// The key that the environment requires, if it does.
pub(crate) fn required() -> Result<Option<PublicKey>, Error> {
    let named = std::env::var(VARIABLE).ok();
    let named = named.filter(|text| !text.is_empty());
    named.map(|text| public(&text)).transpose()
}

/// How runs are opened.
pub(crate) fn options() -> Result<Options, Error> {
    Ok(Options {
        require_key: required()?,
        ..Options::default()
    })
}

fn read(file: &str) -> Result<String, Error> {
    let (folder, name) = split_path(file);
    let read = store::open(&folder).and_then(|store| store.get(&name));
    let bytes = read.map_err(|source| Error::Read {
        path: file.into(),
        source,
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
