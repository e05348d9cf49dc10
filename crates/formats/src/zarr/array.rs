//! The description of an array: its type, shape and grid, and how chunks are written.

use super::Chunk;
use crate::Error;
use crate::entries::Place;
use cairn_tensor::{DType, element_count, row_major_strides};
use serde_json::Value;

/// How the bytes of a chunk are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Plain,
    Zstd,
}

/// Smaller chunks inside of every chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharding {
    /// The shape of the smaller chunks.
    pub(super) chunk: Vec<usize>,
    /// Whether the index is at the end.
    pub(super) index_at_end: bool,
    /// Whether a CRC-32C follows the index.
    pub(super) index_has_crc: bool,
}

/// An array as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The shape of the chunks in the grid.
    chunk: Vec<usize>,
    /// How many chunks lie along each dim, and in all.
    grid: Vec<usize>,
    pub(super) chunk_count: usize,
    /// What stands in front of the coordinates of a chunk, and between them.
    start: &'static str,
    separator: &'static str,
    first_dim_fastest: bool,
    pub(super) codec: Codec,
    pub(super) sharding: Option<Sharding>,
    /// Whether what is not stored is zero.
    pub(super) zero_fill: bool,
}

impl Array {
    /// Reads `.zarray` or `zarr.json`, called `file` in errors.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let json: Value = serde_json::from_slice(bytes)
            .map_err(|error| Error::damaged(file, format!("it is not JSON: {error}")))?;
        let parsed = match json["zarr_format"].as_u64() {
            Some(2) => version_2(&json),
            Some(3) => version_3(&json),
            _ => Err("its version of zarr is neither 2 nor 3".to_string()),
        };
        let array = parsed.map_err(|reason| Error::Unsupported {
            file: file.to_string(),
            reason,
            hint: "arrays are read as Orbax writes them: row by row, plain or compressed with zstd",
        })?;
        array
            .with_grid()
            .ok_or_else(|| Error::damaged(file, "its shape and chunks are no sizes"))
    }

    fn with_grid(mut self) -> Option<Self> {
        if self.chunk.len() != self.shape.len() || self.chunk.contains(&0) {
            return None;
        }
        let count = |(size, chunk): (&usize, &usize)| size.div_ceil(*chunk);
        self.grid = self.shape.iter().zip(&self.chunk).map(count).collect();
        self.chunk_count = element_count(&self.grid)?;
        element_count(&self.shape).and_then(|count| self.dtype.len_bytes(count))?;
        self.len_bytes(&self.chunk)?;
        // Wherever a chunk of the grid begins and ends can be counted.
        let ends = self.grid.iter().zip(&self.chunk);
        ends.map(|(count, chunk)| count.checked_mul(*chunk))
            .collect::<Option<Vec<_>>>()?;
        if let Some(sharding) = &self.sharding {
            let fits =
                |(chunk, inner): (&usize, &usize)| *inner > 0 && chunk.is_multiple_of(*inner);
            let dims = sharding.chunk.len() == self.chunk.len();
            if !dims || !self.chunk.iter().zip(&sharding.chunk).all(fits) {
                return None;
            }
        }
        Some(self)
    }

    /// The bytes of a chunk of this shape.
    pub(super) fn len_bytes(&self, shape: &[usize]) -> Option<u64> {
        let len = element_count(shape).and_then(|count| self.dtype.len_bytes(count))?;
        Some(len as u64)
    }

    /// How far apart neighbours along each dim of a chunk are.
    pub(super) fn strides(&self, shape: &[usize]) -> Vec<usize> {
        match self.first_dim_fastest {
            false => row_major_strides(shape),
            true => {
                let reversed: Vec<usize> = shape.iter().rev().copied().collect();
                row_major_strides(&reversed).into_iter().rev().collect()
            }
        }
    }

    /// The coordinates in the name of a chunk; `None` if it is no chunk's.
    pub(super) fn coordinates(&self, key: &str) -> Option<Vec<usize>> {
        if self.shape.is_empty() {
            let only = if self.start.is_empty() {
                "0"
            } else {
                self.start
            };
            return (key == only.trim_end_matches('/')).then(Vec::new);
        }
        let parts = key.strip_prefix(self.start)?.split(self.separator);
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|number: &usize| number.to_string() == text)
        };
        let coordinates: Option<Vec<usize>> = parts.map(number).collect();
        coordinates.filter(|coordinates| coordinates.len() == self.shape.len())
    }

    /// The number of a chunk, counted row by row; `None` if it is outside of the grid.
    pub(super) fn number(&self, coordinates: &[usize]) -> Option<usize> {
        let inside = coordinates
            .iter()
            .zip(&self.grid)
            .all(|(at, count)| at < count);
        let steps = coordinates.iter().zip(&self.grid);
        inside.then(|| steps.fold(0, |number, (at, count)| number * count + at))
    }

    /// The coordinates of a chunk of the grid.
    pub(super) fn coordinates_of(&self, number: usize) -> Vec<usize> {
        let strides = row_major_strides(&self.grid).into_iter();
        let at = |(stride, count): (usize, &usize)| number / stride.max(1) % count;
        strides.zip(&self.grid).map(at).collect()
    }

    /// A chunk of the grid.
    pub(super) fn chunk(&self, coordinates: &[usize], place: Option<Place>) -> Chunk {
        let begin = |(at, size): (&usize, &usize)| at * size;
        Chunk {
            offset: coordinates.iter().zip(&self.chunk).map(begin).collect(),
            shape: self.chunk.clone(),
            place,
        }
    }
}

fn version_2(json: &Value) -> Result<Array, String> {
    let codec = match (&json["compressor"], json["compressor"]["id"].as_str()) {
        (Value::Null, _) => Codec::Plain,
        (_, Some("zstd")) => Codec::Zstd,
        (other, _) => return Err(format!("its chunks are compressed as {other}")),
    };
    if json["filters"]
        .as_array()
        .is_some_and(|filters| !filters.is_empty())
    {
        return Err("its chunks are filtered".into());
    }
    let name = json["dtype"].as_str().unwrap_or_default();
    Ok(Array {
        dtype: dtype(name).ok_or_else(|| format!("its elements are {}", json["dtype"]))?,
        shape: sizes(&json["shape"])?,
        chunk: sizes(&json["chunks"])?,
        grid: Vec::new(),
        chunk_count: 0,
        start: "",
        separator: match json["dimension_separator"].as_str() {
            Some("/") => "/",
            _ => ".",
        },
        first_dim_fastest: json["order"] == "F",
        codec,
        sharding: None,
        zero_fill: is_zero(&json["fill_value"]),
    })
}

fn version_3(json: &Value) -> Result<Array, String> {
    if json["chunk_grid"]["name"] != "regular" {
        return Err("its chunks are not in a regular grid".into());
    }
    let naming = &json["chunk_key_encoding"];
    let (start, separator) = match (
        naming["name"].as_str(),
        naming["configuration"]["separator"].as_str(),
    ) {
        (Some("default"), None | Some("/")) => ("c/", "/"),
        (Some("default"), Some(".")) => ("c.", "."),
        (Some("v2"), None | Some(".")) => ("", "."),
        (Some("v2"), Some("/")) => ("", "/"),
        _ => return Err(format!("its chunks have names of the kind {naming}")),
    };
    let codecs = json["codecs"].as_array().map_or(&[][..], Vec::as_slice);
    let (codec, sharding) = match codecs {
        [only] if only["name"] == "sharding_indexed" => {
            let settings = &only["configuration"];
            let inner = settings["codecs"].as_array().map_or(&[][..], Vec::as_slice);
            (compression(inner)?, Some(shards(settings)?))
        }
        _ => (compression(codecs)?, None),
    };
    let name = json["data_type"].as_str().unwrap_or_default();
    Ok(Array {
        dtype: dtype(name).ok_or_else(|| format!("its elements are {}", json["data_type"]))?,
        shape: sizes(&json["shape"])?,
        chunk: sizes(&json["chunk_grid"]["configuration"]["chunk_shape"])?,
        grid: Vec::new(),
        chunk_count: 0,
        start,
        separator,
        first_dim_fastest: false,
        codec,
        sharding,
        zero_fill: is_zero(&json["fill_value"]),
    })
}

fn shards(settings: &Value) -> Result<Sharding, String> {
    let names = settings["index_codecs"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|codec| codec["name"].as_str()).collect();
    Ok(Sharding {
        chunk: sizes(&settings["chunk_shape"])?,
        index_at_end: settings["index_location"] != "start",
        index_has_crc: match names.as_slice() {
            ["bytes"] => false,
            ["bytes", "crc32c"] => true,
            _ => return Err(format!("the index of its shards is coded by {names:?}")),
        },
    })
}

/// What the codecs of a chunk come to: its elements in order, lowest byte first, and then perhaps zstd.
fn compression(codecs: &[Value]) -> Result<Codec, String> {
    let names: Option<Vec<&str>> = codecs.iter().map(|codec| codec["name"].as_str()).collect();
    let little = codecs
        .first()
        .is_some_and(|codec| codec["configuration"]["endian"] != "big");
    match names.as_deref() {
        Some(["bytes"]) if little => Ok(Codec::Plain),
        Some(["bytes", "zstd"]) if little => Ok(Codec::Zstd),
        _ => Err(format!("its chunks are coded by {}", Value::from(codecs))),
    }
}

fn sizes(list: &Value) -> Result<Vec<usize>, String> {
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let sizes = list.as_array().map(|list| list.iter().map(size).collect());
    sizes
        .flatten()
        .ok_or_else(|| format!("{list} are no sizes"))
}

/// Nothing said is zero as well.
fn is_zero(fill: &Value) -> bool {
    fill.is_null() || fill.as_f64() == Some(0.0) || fill == &Value::Bool(false)
}

/// Element types, as version 2 and 3 call them.
fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "|b1" | "bool" => DType::Bool,
        "|u1" | "uint8" => DType::U8,
        "|i1" | "int8" => DType::I8,
        "<u2" | "uint16" => DType::U16,
        "<i2" | "int16" => DType::I16,
        "<u4" | "uint32" => DType::U32,
        "<i4" | "int32" => DType::I32,
        "<u8" | "uint64" => DType::U64,
        "<i8" | "int64" => DType::I64,
        "<f2" | "float16" => DType::F16,
        "<f4" | "float32" => DType::F32,
        "<f8" | "float64" => DType::F64,
        "<c8" | "complex64" => DType::C64,
        "bfloat16" => DType::Bf16,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        _ => return None,
    })
}
