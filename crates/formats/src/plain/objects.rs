//! Objects and calls that stand for plain values.

use super::{Writer, opaque};
use crate::Error;
use crate::pickle::Node;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Functions and classes whose calls are known or passed on as opaque.
pub(super) const CALLED: &[&str] = &[
    "__builtin__.bytearray",
    "__builtin__.bytes",
    "__builtin__.complex",
    "__builtin__.frozenset",
    "__builtin__.set",
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.bytes",
    "builtins.complex",
    "builtins.frozenset",
    "builtins.set",
    "collections.Counter",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.deque",
    "datetime.datetime",
    "datetime.timedelta",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.dtype",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "torch.Size",
    "torch.device",
];

/// Classes whose objects are known.
pub(super) const BUILT: &[&str] = &[
    "argparse.Namespace",
    "collections.OrderedDict",
    "types.SimpleNamespace",
];

/// What else may be mentioned: element types, and the makers of default values.
pub(super) const MENTIONED: &[&str] = &[
    "__builtin__.bool",
    "__builtin__.dict",
    "__builtin__.float",
    "__builtin__.int",
    "__builtin__.list",
    "__builtin__.long",
    "__builtin__.str",
    "__builtin__.unicode",
    "builtins.bool",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.str",
    "numpy.ndarray",
    "torch.bfloat16",
    "torch.bool",
    "torch.complex128",
    "torch.complex64",
    "torch.float16",
    "torch.float32",
    "torch.float4_e2m1fn_x2",
    "torch.float64",
    "torch.float8_e4m3fn",
    "torch.float8_e4m3fnuz",
    "torch.float8_e5m2",
    "torch.float8_e5m2fnuz",
    "torch.float8_e8m0fnu",
    "torch.int16",
    "torch.int32",
    "torch.int64",
    "torch.int8",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch.uint8",
];

impl Writer<'_> {
    pub(super) fn object(&mut self, node: Node, depth: usize) -> Result<Value, Error> {
        let class = node.class().unwrap_or_default();
        let args = node.args();
        let name = class.rsplit('.').next().unwrap_or_default();
        let plain = match (name, args.as_slice()) {
            ("OrderedDict" | "defaultdict", _) => self.dict(node, depth)?,
            ("Counter", [counts]) => self.dict(*counts, depth)?,
            ("Namespace" | "SimpleNamespace", _) => match node.state() {
                Some(state) => self.dict(state, depth)?,
                None => json!({}),
            },
            ("deque", _) => self.list(node, depth)?,
            ("set" | "frozenset", []) => json!({"$set": []}),
            ("set" | "frozenset", [items]) => json!({"$set": self.list(*items, depth)?}),
            ("Size", [items]) => json!({"$tuple": self.list(*items, depth)?}),
            ("complex", [re, im]) => {
                json!({"$complex": [self.value(*re, depth + 1)?, self.value(*im, depth + 1)?]})
            }
            ("PosixPath" | "PurePosixPath", parts) => path(parts).unwrap_or_else(|| opaque(class)),
            ("_reconstruct", _) => self.array(node)?.unwrap_or_else(|| opaque("numpy.ndarray")),
            ("scalar", [dtype, data]) => {
                let array = self.ndarray(*dtype, Vec::new(), *data)?;
                array.unwrap_or_else(|| opaque(class))
            }
            _ => match self.bytes_of(node)? {
                Some(bytes) => json!({"$bytes": STANDARD.encode(bytes)}),
                None => opaque(class),
            },
        };
        Ok(plain)
    }

    /// An array from its state: `(version, shape, dtype, is_fortran, data)`.
    fn array(&mut self, node: Node) -> Result<Option<Value>, Error> {
        let state = node.state().and_then(Node::items).unwrap_or_default();
        let [_, shape, dtype, fortran, data] = state.as_slice() else {
            return Ok(None);
        };
        let shape: Option<Vec<usize>> = shape
            .items()
            .and_then(|dims| dims.into_iter().map(Node::as_usize).collect());
        match shape {
            // The order of a vector's elements is the same either way.
            Some(shape) if fortran.as_bool() == Some(false) || shape.len() < 2 => {
                self.ndarray(*dtype, shape, *data)
            }
            _ => Ok(None),
        }
    }

    fn ndarray(
        &mut self,
        dtype: Node,
        shape: Vec<usize>,
        data: Node,
    ) -> Result<Option<Value>, Error> {
        let (Some(dtype), Some(bytes)) = (numpy_dtype(dtype), self.bytes_of(data)?) else {
            return Ok(None);
        };
        let data = STANDARD.encode(bytes);
        Ok(Some(
            json!({"$ndarray": {"dtype": dtype, "shape": shape, "data": data}}),
        ))
    }
}

/// `<u4` from `numpy.dtype("u4", …)` with the state `(3, "<", …)`.
fn numpy_dtype(node: Node) -> Option<String> {
    let kind = node.args().first()?.as_str()?;
    let order = node.state()?.items()?.get(1)?.as_str()?;
    let digits = kind.strip_prefix(['b', 'i', 'u', 'f', 'c'])?;
    let simple = digits.parse::<u8>().is_ok() && matches!(order, "<" | "|");
    simple.then(|| format!("{order}{kind}"))
}

fn path(parts: &[Node]) -> Option<Value> {
    let parts: Option<Vec<&str>> = parts.iter().map(|part| part.as_str()).collect();
    let text = parts?.join("/");
    Some(json!(text.replacen("//", "/", 1)))
}

/// Bytes as protocol 2 spells them: `_codecs.encode("…", "latin1")`, `bytes()`, `bytearray(…)`.
pub(super) fn spelled_bytes(node: Node) -> Option<Vec<u8>> {
    let args = node.args();
    match (node.class()?, args.as_slice()) {
        ("_codecs.encode", [text, encoding]) if encoding.as_str() == Some("latin1") => {
            let bytes = text.as_str()?.chars().map(|char| u8::try_from(char).ok());
            bytes.collect()
        }
        ("__builtin__.bytes" | "builtins.bytes", []) => Some(Vec::new()),
        ("__builtin__.bytearray" | "builtins.bytearray", []) => Some(Vec::new()),
        ("__builtin__.bytearray" | "builtins.bytearray", [inner]) => match inner.value() {
            crate::pickle::Value::Bytes(bytes) => Some(bytes.to_vec()),
            _ if inner.class() == Some("_codecs.encode") => spelled_bytes(*inner),
            _ => None,
        },
        _ => None,
    }
}
