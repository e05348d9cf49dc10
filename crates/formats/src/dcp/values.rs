//! Plain values: small torch archives, mostly side by side.

use super::Files;
use super::metadata::{Item, Metadata};
use crate::model::Model;
use crate::pickle::Input;
use crate::{Error, torch_zip};
use cairn_store::Store;
use serde_json::Value;

/// The longest item that is read as a plain value.
const MAX_VALUE_BYTES: u64 = 64 << 20;

/// Reads every value into the model, in the order they lie in the files.
pub(super) fn read(
    store: &dyn Store,
    metadata: &Metadata,
    files: &Files,
    model: &mut Model,
) -> Result<(), Error> {
    let mut items: Vec<(usize, &String, &Item)> = metadata
        .values
        .iter()
        .map(|(name, item)| (files.index(item), name, item))
        .collect();
    items.sort_by_key(|(file, _, item)| (*file, item.offset));
    for of_file in items.chunk_by(|one, other| one.0 == other.0) {
        let key = files.key(of_file[0].0);
        let reader = store.reader(key)?;
        let mut input = Input::new(reader.as_ref(), 0..reader.len());
        for (_, name, item) in of_file {
            if item.offset < input.position() {
                input = Input::new(reader.as_ref(), item.offset..reader.len());
            }
            let value = read_one(key, name, item, &mut input)?;
            model.values.insert((*name).clone(), value);
        }
    }
    Ok(())
}

fn read_one(key: &str, name: &str, item: &Item, input: &mut Input) -> Result<Value, Error> {
    if item.len > MAX_VALUE_BYTES {
        return Err(Error::Unsupported {
            file: key.to_string(),
            reason: format!("the value `{name}` has {} bytes", item.len),
            hint: "save large arrays as tensors",
        });
    }
    let short = || Error::damaged(key, format!("it ends inside `{name}`"));
    let gap = item.offset - input.position();
    input.skip(gap).ok_or_else(short)?;
    let bytes = input.take(item.len)?.ok_or_else(short)?;
    torch_zip::read_value(key, bytes)
}
