//! A dict of tensors and plain values as one archive, around data that is written by somebody else.
//!
//! ```text
//! data.pkl … header of data/0 │ bytes │ descriptor, header of data/1 │ bytes │ … │ descriptor, central directory
//! ╰─────── frame 0 ──────────╯         ╰────────── frame 1 ─────────╯             ╰───────── last frame ─────────╯
//! ```

use super::encode::put_tensor;
use super::zip::Zip;
use crate::pickle::Writer;
use crate::plain;
use cairn_tensor::{DType, element_count};
use serde_json::Value;
use std::collections::BTreeMap;

/// The bytes around the data of tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFrames {
    /// What comes before the data of each tensor and, as the last, behind all.
    pub frames: Vec<Vec<u8>>,
    /// Where the CRC-32 of each tensor's data belongs, four bytes from the lowest on: a frame, and a place in it. It is
    /// zero there.
    pub crc_at: Vec<[(usize, usize); 2]>,
}

/// The frames of an archive that `torch.load(weights_only=True)` opens: a dict of these tensors, each row-major, and values.
///
/// # Errors
/// The name of a tensor whose type torch does not have, or of a value that can only be named.
pub fn state_frames(
    tensors: &[(&str, DType, &[usize])],
    values: &BTreeMap<String, Value>,
) -> Result<StateFrames, String> {
    let mut pickle = Writer::new();
    pickle.open_dict();
    for (name, value) in values {
        pickle.str(name);
        plain::to_pickle(value, &mut pickle).ok_or_else(|| name.clone())?;
    }
    let mut lens = Vec::with_capacity(tensors.len());
    for (index, (name, dtype, shape)) in tensors.iter().enumerate() {
        let refused = || (*name).to_string();
        pickle.str(name);
        put_tensor(&mut pickle, &index.to_string(), *dtype, shape).ok_or_else(refused)?;
        let len = element_count(shape).and_then(|count| dtype.len_bytes(count));
        lens.push(len.ok_or_else(refused)? as u64);
    }
    pickle.dict();
    let mut zip = Zip::new(&pickle.finish());
    let first = zip.entry_count();
    let (mut frames, mut descriptors) = (Vec::new(), Vec::new());
    for (index, len) in lens.into_iter().enumerate() {
        zip.open(&format!("data/{index}"), len, None);
        frames.push(zip.drain());
        descriptors.push((frames.len(), zip.describe(len)));
    }
    let last = frames.len();
    let directory = zip.close().split_off(first);
    frames.push(zip.drain());
    let places = descriptors.into_iter().zip(directory);
    Ok(StateFrames {
        frames,
        crc_at: places.map(|(near, far)| [near, (last, far)]).collect(),
    })
}

#[cfg(test)]
mod tests {
    //! What is written is read again; Python's tests hand it to torch.

    use super::*;
    use crate::open_file;
    use crate::reading::bytes;
    use cairn_store::{Memory, PutMode, Store};
    use serde_json::json;

    fn written(tensors: &[(&str, DType, &[usize])]) -> Vec<u8> {
        let values = BTreeMap::from([("step".to_string(), json!({"at": [3, 0.5, null]}))]);
        let frames = state_frames(tensors, &values).unwrap();
        let mut file = frames.frames[0].clone();
        for (index, (_, dtype, shape)) in tensors.iter().enumerate() {
            let count = shape.iter().product::<usize>();
            let byte = u8::try_from(index % 251).unwrap();
            file.extend(vec![byte; dtype.len_bytes(count).unwrap()]);
            file.extend(&frames.frames[index + 1]);
        }
        file
    }

    #[test]
    fn what_is_written_is_read() {
        let tensors: [(&str, DType, &[usize]); 4] = [
            ("w", DType::F32, &[2, 3]),
            ("b", DType::Bf16, &[]),
            ("e", DType::F8E4M3, &[0, 2]),
            ("f", DType::F8E4M3, &[5]),
        ];
        let store = Memory::new();
        store
            .put("x.pt", &written(&tensors), PutMode::Create)
            .unwrap();
        let model = open_file(&store, "x.pt").unwrap();
        assert_eq!(model.values["step"], json!({"at": [3, 0.5, null]}));
        for (index, (name, dtype, shape)) in tensors.into_iter().enumerate() {
            let tensor = &model.tensors[name];
            assert_eq!((tensor.dtype, tensor.shape.as_slice()), (dtype, shape));
            assert_eq!(tensor.pieces[0].offset % 64, 0, "{name}");
            let data = bytes(&store, &model, name).unwrap();
            assert!(data.iter().all(|byte| usize::from(*byte) == index));
        }
    }

    #[test]
    fn there_may_be_more_tensors_than_a_plain_zip_counts() {
        let names: Vec<String> = (0..70_000).map(|index| format!("w{index}")).collect();
        let tensors: Vec<(&str, DType, &[usize])> = names
            .iter()
            .map(|name| (name.as_str(), DType::U8, &[1][..]))
            .collect();
        let store = Memory::new();
        store
            .put("x.pt", &written(&tensors), PutMode::Create)
            .unwrap();
        assert_eq!(open_file(&store, "x.pt").unwrap().tensors.len(), 70_000);
    }

    #[test]
    fn places_beyond_four_gigabytes_are_wide() {
        let frames = state_frames(
            &[("a", DType::U8, &[5 << 30]), ("b", DType::U8, &[1])],
            &BTreeMap::new(),
        )
        .unwrap();
        let end = frames.frames.last().unwrap();
        let wide = b"PK\x06\x06";
        assert!(end.windows(4).any(|word| word == wide));
        // Lengths of `a` are eight bytes each, and so is the offset of `b`.
        assert!(
            end.windows(8)
                .filter(|word| **word == (5_u64 << 30).to_le_bytes())
                .count()
                >= 2
        );
    }

    #[test]
    fn what_torch_cannot_say_is_named() {
        let tensors: [(&str, DType, &[usize]); 1] = [("odd", DType::F4, &[2])];
        assert_eq!(state_frames(&tensors, &BTreeMap::new()).unwrap_err(), "odd");
        let values = BTreeMap::from([("thing".to_string(), json!({"$opaque": "x.Y"}))]);
        assert_eq!(state_frames(&[], &values).unwrap_err(), "thing");
    }
}
