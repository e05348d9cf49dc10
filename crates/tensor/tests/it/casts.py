"""Writes what NumPy and ml_dtypes make of every cast into a folder, for casts.rs to compare.

Files: SOURCE.bin holds the elements, SOURCE-TARGET-OVERFLOW.bin what they become; all packed and
little-endian as Cairn has them. Integer and bool targets have no overflow and one file.
"""

import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np

SMALL = {
    "f4": ml_dtypes.float4_e2m1fn,
    "f6_e2m3": ml_dtypes.float6_e2m3fn,
    "f6_e3m2": ml_dtypes.float6_e3m2fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e8m0": ml_dtypes.float8_e8m0fnu,
    "f8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
INTEGERS = {
    "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
    "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64,
}  # fmt: skip
BITS = {"f4": 4, "f6_e2m3": 6, "f6_e3m2": 6}


def every_value(name):
    """The value of every code, in order."""
    codes = np.uint16 if name in ("f16", "bf16") else np.uint8
    return np.arange(2 ** BITS.get(name, 8 * codes().itemsize), dtype=codes).view(SMALL[name])


def pack(name, array):
    """The bytes of an array; ml_dtypes keeps one element of less than 8 bits per byte."""
    bits = BITS.get(name)
    if bits is None:
        return array.tobytes()
    codes = array.view(np.uint8) & (2**bits - 1)
    each_bit = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(each_bit, bitorder="little")


def odd_f32(wide):
    """Rounds f64 to f32 so that rounding once more gives what rounding once would have given."""
    nearest = wide.astype(np.float32)
    inexact = (nearest.astype(np.float64) != wide) & ~np.isnan(wide)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(wide)
    toward_zero = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    return np.where(inexact, (toward_zero.view(np.uint32) | 1).view(np.float32), nearest)


def odd_f64(integers):
    """Rounds integers to f64, keeping 40 bits and the trace of the others."""
    negative = integers < 0
    magnitude = integers.astype(np.uint64)
    magnitude = np.where(negative, np.uint64(0) - magnitude, magnitude)
    kept = (magnitude >> np.uint64(24)) | ((magnitude & np.uint64(0xFFFFFF)) != 0)
    long = kept.astype(np.float64) * 2.0**24
    rounded = np.where(magnitude < 2**40, magnitude.astype(np.float64), long)
    return np.where(negative, -rounded, rounded)


def to_small(source, dtype, saturate):
    if source.dtype in (np.float64, np.int32, np.uint32, np.int64, np.uint64):
        source = odd_f32(source if source.dtype == np.float64 else odd_f64(source))
    elif saturate or source.dtype.kind in "iu":
        source = source.astype(np.float32)
    if saturate:
        largest = float(ml_dtypes.finfo(dtype).max)
        source = np.clip(source, -largest, largest)
    try:
        return source.astype(dtype)
    except TypeError:  # Not every pair of small types has a cast; all values are exact in f32.
        return source.astype(np.float32).astype(dtype)


def to_wide(source, dtype, saturate):
    if source.dtype.kind not in "iuf":
        source = source.astype(np.float32)
    result = source.astype(dtype)
    return np.clip(result, np.finfo(dtype).min, np.finfo(dtype).max) if saturate else result


def to_integers(source, dtype):
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    if source.dtype.kind not in "iu":
        source = np.trunc(source.astype(np.float64))
        in_range = (source >= lowest) & (source < float(highest + 1))
        result = np.where(in_range, source, 0).astype(dtype)
    else:
        result = source.astype(dtype)
    result = np.where(source >= highest + 1, dtype(highest), result)
    return np.where(source < lowest, dtype(lowest), result).astype(dtype)


def results(source):
    """Every target with what the source becomes there."""
    if source.dtype == bool:
        source = source.astype(np.uint8)
    values = source if source.dtype.kind in "iuf" else source.astype(np.float32)
    yield "bool", "native", values != 0
    for name, dtype in INTEGERS.items():
        yield name, "native", to_integers(source, dtype)
    for overflow in ("native", "saturate"):
        saturate = overflow == "saturate"
        for name, dtype in SMALL.items():
            yield name, overflow, to_small(source, dtype, saturate)
        yield "f32", overflow, to_wide(source, np.float32, saturate)
        yield "f64", overflow, to_wide(source, np.float64, saturate)
        yield "c64", overflow, to_wide(source, np.float32, saturate).astype(np.complex64)


def with_neighbours(values):
    infinity = values.dtype.type(np.inf)
    return np.concatenate([values, np.nextafter(values, infinity), np.nextafter(values, -infinity)])


def f32_samples(random):
    """All small values, the halves between them and the neighbours of both, then random bits."""
    edges = [0.0, np.inf, np.nan, np.finfo(np.float32).max, np.finfo(np.float32).tiny]
    for name in SMALL:
        values = np.unique(np.abs(every_value(name).astype(np.float64)))
        values = values[np.isfinite(values)]
        beyond = np.array([1.25, 1.5, 2.0]) * values[-1]
        edges += [values, (values[:-1] + values[1:]) / 2, values[:1] / 2, values[:1] / 4, beyond]
    edges = with_neighbours(np.unique(np.hstack(edges).astype(np.float32)))
    bits = random.integers(0, 2**32, 1_000_000, np.uint64).astype(np.uint32)
    moderate = random.standard_normal(100_000) * np.exp2(random.integers(-20, 20, 100_000))
    return np.concatenate([edges, -edges, bits.view(np.float32), moderate.astype(np.float32)])


def f64_samples(random):
    """The edges of f32 with neighbours so near that rounding twice would lose them."""
    edges = with_neighbours(f32_samples(random)[:300_000].astype(np.float64))
    bits = random.integers(0, 2**64, 1_000_000, np.uint64)
    scaled = random.standard_normal(100_000) * np.exp2(random.integers(-160, 160, 100_000))
    return np.concatenate([edges, bits.view(np.float64), scaled])


def integer_samples(random, dtype):
    """Powers of two and the halves between short numbers, give or take one, then random lengths."""
    limits = np.iinfo(dtype)
    edges = [0, limits.min, limits.max]
    for high in range(limits.bits):
        for low in range(high):
            value = (1 << high) + (1 << low) * bool(low)
            edges += [sign * value + near for sign in (1, -1) for near in (-1, 0, 1)]
    edges = [value for value in edges if limits.min <= value <= limits.max]
    noise = random.integers(0, 2**limits.bits, 100_000, np.uint64)
    noise >>= random.integers(0, limits.bits, 100_000, np.uint64)
    return np.concatenate([np.array(edges, dtype), noise.astype(dtype)])


def sources():
    random = np.random.default_rng(0)
    yield "bool", np.array([False, True, True, False])
    for name in SMALL:
        yield name, every_value(name)
    for name, dtype in INTEGERS.items():
        limits = np.iinfo(dtype)
        if limits.bits <= 16:
            yield name, np.arange(limits.min, limits.max + 1).astype(dtype)
        else:
            yield name, integer_samples(random, dtype)
    yield "f32", f32_samples(random)
    yield "f64", f64_samples(random)


def main(folder):
    warnings.simplefilter("ignore")  # Overflow and NaN are the point.
    for name, source in sources():
        source = source[: len(source) // 4 * 4]  # Four elements fill whole bytes of every type.
        (folder / f"{name}.bin").write_bytes(pack(name, source))
        for target, overflow, result in results(source):
            (folder / f"{name}-{target}-{overflow}.bin").write_bytes(pack(target, result))


main(Path(sys.argv[1]))
