//! The names programs give to element types: those of NumPy, PyTorch and Paddle, besides our own.

use cairn_tensor::DType;

/// The name of an element type in programs and their results, such as `bfloat16`.
pub fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::F4 => "float4_e2m1",
        DType::F6E2M3 => "float6_e2m3",
        DType::F6E3M2 => "float6_e3m2",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::F8E5M2 => "float8_e5m2",
        DType::F8E4M3 => "float8_e4m3fn",
        DType::F8E8M0 => "float8_e8m0fnu",
        DType::F8E4M3Fnuz => "float8_e4m3fnuz",
        DType::F8E5M2Fnuz => "float8_e5m2fnuz",
        DType::I16 => "int16",
        DType::U16 => "uint16",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::I32 => "int32",
        DType::U32 => "uint32",
        DType::F32 => "float32",
        DType::C64 => "complex64",
        DType::F64 => "float64",
        DType::I64 => "int64",
        DType::U64 => "uint64",
    }
}

/// The element type of a name: `bfloat16`, `bf16` or `BF16`.
pub fn parse(text: &str) -> Option<DType> {
    let named = DType::ALL.into_iter().find(|dtype| name(*dtype) == text);
    named.or_else(|| text.parse().ok())
}
