"""Reads a Cairn checkpoint as docs/format.md describes it, with nothing but the standard library.
`python cairn_reader.py RUN` prints every tensor of the newest step: name, type, shape, SHA-256 of its bytes."""

import hashlib
import json
import math
import re
import struct
import sys
from pathlib import Path

SEAL = re.compile(rb'(.*),"sha256":"([0-9a-f]{64})"}\n', re.DOTALL)
SPEC = re.compile(r"(\w+)\[([^|\]]*)")
PIECE = re.compile(r"((?:\d+:\d+(?:,\d+:\d+)*)?)(?:#(\d+):(\d+))?")


def check(holds, file, reason):
    if not holds:
        raise ValueError(f"{file} {reason}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


CRC_TABLE = list(range(256))
for _ in range(8):
    CRC_TABLE = [crc >> 1 ^ (crc & 1) * 0x82F63B78 for crc in CRC_TABLE]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def unseal(file, line, kind):
    """The members of a sealed document."""
    sealed = SEAL.fullmatch(line)
    check(sealed and sha256(sealed[1]) == sealed[2].decode(), file, "has a broken seal")
    members = json.loads(line)
    check(members["cairn"] in (1, 2), file, f"has format version {members['cairn']}, this reader knows 1 and 2")
    check(set(members.get("needs", [])) <= {"delta", "packed", "lines"}, file, f"needs {members.get('needs')}, this reader knows deltas, packed files and lines")
    check(members["kind"] == kind, file, f"is no {kind}")
    return members


def unpack_block(path, packed, length):
    """A block of a packed file."""
    width, rest = packed[0], packed[1:]
    if width == 0:
        return rest
    check(width in (1, 2, 4, 8), path, "has a block of a width that there is not")
    block, plane_len, at = bytearray(length), length // width, 4 * width
    for number in range(width):
        [size] = struct.unpack_from("<I", rest, 4 * number)
        is_plain, size = size >> 31, size & 0x7FFFFFFF
        plane = rest[at : at + size]
        if not is_plain:
            # Not in the standard library of every version.
            plane = __import__("zstandard").ZstdDecompressor().decompress(plane, max_output_size=plane_len)
        check(len(plane) == plane_len, path, "has a plane of the wrong length")
        block[number : plane_len * width : width] = plane
        at += size
    block[plane_len * width :] = rest[at:]
    return bytes(block)


def read_data(path):
    """The bytes that a data file stands for."""
    data = path.read_bytes()
    if path.suffix != ".packed":
        return data
    magic, length, index_crc, crc = struct.unpack("<8sQII", data[-24:])
    check(magic == b"CAIRNPK1" and crc32c(data[-24:-4]) == crc, path, "is no packed file")
    count = -(-length // 65536)
    index = data[len(data) - 24 - 12 * count : -24]
    check(crc32c(index) == index_crc, path, "has a damaged index")
    entries = enumerate(struct.iter_unpack("<QI", index))
    lengths = [min(65536, length - 65536 * number) for number in range(count)]
    return b"".join(unpack_block(path, data[at : at + size], lengths[number]) for number, (at, size) in entries)


def join_blocks(path, file, block_map):
    """The bytes of a file whose blocks lie in several."""
    delta, size = file["delta"], file["block_bytes"]
    check(sha256(block_map[:-1]) == delta["map_sha256"], path, "has a damaged map of blocks")
    run = path.parent.parent.parent
    files = [read_data(path) if delta["stored_bytes"] else b"", *(read_data(run / key) for key in delta["bases"])]
    runs = json.loads(block_map)
    return b"".join(files[at][first * size : (first + count) * size] for count, at, first in runs)[: file["len_bytes"]]


def read_part(attempt, manifest, writer):
    """A writer's part, and the bytes of its data file, both checked."""
    path = attempt / f"{writer:05}.part"
    line, table, *block_map = path.read_bytes().splitlines(keepends=True)
    part = unseal(path, line, "part")
    check(part["sha256"][:16] == manifest["parts"][16 * writer :][:16], path, "is not the committed part")
    place = [part[member] for member in ("step", "attempt", "writer", "world")]
    check(place == [manifest["step"], manifest["attempt"], writer, manifest["writers"]], path, "is in the wrong place")
    file = part["file"]
    if file is None:
        return part, None
    path = attempt / file["name"]
    data = join_blocks(path, file, block_map[0]) if "delta" in file else read_data(path)
    check(len(data) == file["len_bytes"], path, "has the wrong length")
    check(sha256(table[:-1]) == file["crcs_sha256"], path, "has a damaged table of CRCs")
    blocks = range(0, len(data), file["block_bytes"])
    crcs = b"".join(b"%08x" % crc32c(data[at : at + file["block_bytes"]]) for at in blocks)
    check(crcs == table[:-1], path, "has a block with the wrong CRC")
    return part, data


def read_entries(data):
    """Name, element type, shape and bytes of each entry of a safetensors file."""
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"].lower(), entry["shape"], data[start + begin : start + end]


class Tensor:
    """A tensor that is being put together; elements smaller than a byte take one each until it is done."""

    def __init__(self, dtype, shape, may_overlap):
        self.dtype, self.shape, self.may_overlap = dtype, shape, may_overlap
        self.bits = 8 if dtype == "bool" else int(re.search(r"\d+", dtype)[0])
        self.unit = max(self.bits // 8, 1)
        self.elements = bytearray(math.prod(shape) * self.unit)
        self.covered = bytearray(math.prod(shape))
        self.strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]

    def put(self, entry, text, shape, data):
        """Copies a piece to its place, row by row."""
        box, *flat = PIECE.fullmatch(text).groups()
        dims = [tuple(map(int, dim.split(":"))) for dim in box.split(",") if dim]
        extent = [count for _, count in dims]
        first, end = map(int, flat) if flat[0] else (0, math.prod(extent))
        check(shape == ([end - first] if flat[0] else extent), entry, "has the wrong shape")
        if self.bits < 8:
            packed = int.from_bytes(data, "little")
            data = bytes(packed >> at & (1 << self.bits) - 1 for at in range(0, 8 * len(data), self.bits))
        check(len(data) == (end - first) * self.unit, entry, "has the wrong length")
        row, at, unit = (extent or [1])[-1], first, self.unit
        while at < end:
            count, index, rest = min(end, at - at % row + row) - at, 0, at
            for (offset, extent), stride in zip(reversed(dims), reversed(self.strides), strict=True):
                index += (offset + rest % extent) * stride
                rest //= extent
            check(self.may_overlap or not any(self.covered[index : index + count]), entry, "overlaps another piece")
            self.covered[index : index + count] = b"\1" * count
            self.elements[index * unit : (index + count) * unit] = data[(at - first) * unit :][: count * unit]
            at += count

    def bytes(self):
        if self.bits >= 8:
            return bytes(self.elements)
        packed = sum(element << at * self.bits for at, element in enumerate(self.elements))
        return packed.to_bytes(len(self.elements) * self.bits // 8, "little")


def empty_tensors(manifest):
    for mesh in manifest["layouts"]:
        for name, spec in mesh["tensors"].items():
            dtype, dims = SPEC.match(spec).groups()
            yield name, Tensor(dtype, [int(dim.split("@")[0]) for dim in dims.split(",") if dim.strip()], False)
    for name, listed in manifest["listed"].items():
        yield name, Tensor(listed["dtype"], listed["shape"], True)


def read_step(folder):
    """A committed step: its manifest, name → tensor with aliases, and each rank's own values."""
    commit = next(path for path in (folder / name for name in ("COMMIT", "HIDDEN", "COMMIT")) if path.exists())
    manifest = unseal(commit, commit.read_bytes(), "manifest")
    attempt, tensors = folder / manifest["attempt"], dict(empty_tensors(manifest))
    parts = [read_part(attempt, manifest, writer) for writer in range(manifest["writers"])]
    for _, data in parts:
        for entry, dtype, shape, values in read_entries(data) if data else ():
            name, _, piece = (entry, "", "") if entry in tensors else entry.rpartition("@")
            check(name in tensors and tensors[name].dtype == dtype, entry, "is of no tensor")
            tensors[name].put(entry, piece or ",".join(f"0:{size}" for size in shape), shape, values)
    for name, tensor in tensors.items():
        check(all(tensor.covered), name, "has elements that nobody wrote")
    for name, asset in manifest["assets"].items():
        check(sha256((attempt / "files" / name).read_bytes()) == asset["sha256"], name, "is damaged")
    tensors |= {alias: tensors[name] for alias, name in manifest["aliases"].items()}
    return manifest, tensors, [part["rank_values"] for part, _ in parts]


def newest_step(run):
    committed = [*run.glob("step-*/COMMIT"), *run.glob("step-*/HIDDEN")]
    return max(committed, key=lambda commit: (json.loads(commit.read_bytes()).get("line", 0), int(commit.parent.name[5:]))).parent


if __name__ == "__main__":
    for name, tensor in sorted(read_step(newest_step(Path(sys.argv[1])))[1].items()):
        print(name, tensor.dtype, tensor.shape, sha256(tensor.bytes()))
