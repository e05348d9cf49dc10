//! What torch calls element types and the storages that hold them.

use cairn_tensor::DType;

/// Every type, with torch's name of it. `float4_e2m1fn_x2` counts pairs, so that it needs care.
const DTYPES: [(&str, DType); 20] = [
    ("torch.bool", DType::Bool),
    ("torch.uint8", DType::U8),
    ("torch.int8", DType::I8),
    ("torch.int16", DType::I16),
    ("torch.uint16", DType::U16),
    ("torch.int32", DType::I32),
    ("torch.uint32", DType::U32),
    ("torch.int64", DType::I64),
    ("torch.uint64", DType::U64),
    ("torch.float16", DType::F16),
    ("torch.bfloat16", DType::Bf16),
    ("torch.float32", DType::F32),
    ("torch.float64", DType::F64),
    ("torch.complex64", DType::C64),
    ("torch.float8_e4m3fn", DType::F8E4M3),
    ("torch.float8_e5m2", DType::F8E5M2),
    ("torch.float8_e4m3fnuz", DType::F8E4M3Fnuz),
    ("torch.float8_e5m2fnuz", DType::F8E5M2Fnuz),
    ("torch.float8_e8m0fnu", DType::F8E8M0),
    ("torch.float4_e2m1fn_x2", DType::F4),
];

/// The storages that say what they hold.
const TYPED_STORAGES: [(&str, DType); 11] = [
    ("torch.BoolStorage", DType::Bool),
    ("torch.ByteStorage", DType::U8),
    ("torch.CharStorage", DType::I8),
    ("torch.ShortStorage", DType::I16),
    ("torch.IntStorage", DType::I32),
    ("torch.LongStorage", DType::I64),
    ("torch.HalfStorage", DType::F16),
    ("torch.BFloat16Storage", DType::Bf16),
    ("torch.FloatStorage", DType::F32),
    ("torch.DoubleStorage", DType::F64),
    ("torch.ComplexFloatStorage", DType::C64),
];

/// The names of storages a pickle may mention.
pub(super) const STORAGES: &[&str] = &[
    "torch.BoolStorage",
    "torch.ByteStorage",
    "torch.CharStorage",
    "torch.ShortStorage",
    "torch.IntStorage",
    "torch.LongStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.FloatStorage",
    "torch.DoubleStorage",
    "torch.ComplexFloatStorage",
    "torch.ComplexDoubleStorage",
    "torch.storage.UntypedStorage",
    "torch.UntypedStorage",
];

/// The element type that torch calls `name`, such as `torch.bfloat16`.
pub fn dtype(name: &str) -> Option<DType> {
    let found = DTYPES.iter().find(|(torch, _)| *torch == name);
    found.map(|(_, dtype)| *dtype)
}

/// What torch calls an element type; `None` if it has none like it.
pub fn torch_name(dtype: DType) -> Option<&'static str> {
    let found = DTYPES.iter().find(|(_, ours)| *ours == dtype);
    found.map(|(torch, _)| *torch)
}

/// The storage that says it holds such elements, if there is one.
pub(super) fn storage_of(dtype: DType) -> Option<&'static str> {
    let found = TYPED_STORAGES.iter().find(|(_, ours)| *ours == dtype);
    found.map(|(torch, _)| *torch)
}

/// The element type of a typed storage.
pub(super) fn of_storage(storage: &str) -> Option<DType> {
    let found = TYPED_STORAGES.iter().find(|(torch, _)| *torch == storage);
    found.map(|(_, dtype)| *dtype)
}
