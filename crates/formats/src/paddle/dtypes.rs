//! What Paddle calls element types: in files of parameters, in programs, and in numpy's way.

use cairn_tensor::DType;

/// Every type: its code in protobuf, its name in a program, and that of numpy if Paddle uses one.
const DTYPES: [(DType, u64, &str, Option<&str>); 16] = [
    (DType::Bool, 0, "t_bool", Some("b1")),
    (DType::I16, 1, "t_i16", Some("i2")),
    (DType::I32, 2, "t_i32", Some("i4")),
    (DType::I64, 3, "t_i64", Some("i8")),
    (DType::F16, 4, "t_f16", Some("f2")),
    (DType::F32, 5, "t_f32", Some("f4")),
    (DType::F64, 6, "t_f64", Some("f8")),
    (DType::U8, 20, "t_ui8", Some("u1")),
    (DType::I8, 21, "t_i8", Some("i1")),
    // What Paddle has no numpy type for.
    (DType::Bf16, 22, "t_bf16", Some("u2")),
    (DType::C64, 23, "t_c64", Some("c8")),
    (DType::F8E4M3, 32, "t_f8e4m3fn", None),
    (DType::F8E5M2, 33, "t_f8e5m2", None),
    (DType::U16, 36, "t_ui16", None),
    (DType::U32, 37, "t_ui32", Some("u4")),
    (DType::U64, 38, "t_ui64", Some("u8")),
];

/// The type with this code.
pub(super) fn of_code(code: u64) -> Option<DType> {
    DTYPES.iter().find(|row| row.1 == code).map(|row| row.0)
}

/// The code of a type.
pub(super) fn code(dtype: DType) -> Option<u64> {
    DTYPES.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

/// The type that a program calls this.
pub(super) fn of_program(name: &str) -> Option<DType> {
    let name = name.rsplit('.').next()?;
    DTYPES.iter().find(|row| row.2 == name).map(|row| row.0)
}

/// The type that numpy calls this in Paddle's pickles.
pub(super) fn of_numpy(name: &str) -> Option<DType> {
    DTYPES
        .iter()
        .find(|row| row.3 == Some(name))
        .map(|row| row.0)
}

/// What numpy calls a type in Paddle's pickles.
pub(super) fn numpy(dtype: DType) -> Option<&'static str> {
    DTYPES
        .iter()
        .find(|row| row.0 == dtype)
        .and_then(|row| row.3)
}
