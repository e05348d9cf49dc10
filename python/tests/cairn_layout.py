"""Who holds and who writes what, worked out from docs/format.md §5 and §6 and nothing else."""

import hashlib
import math
import re

MIN_CUT_BYTES = 1 << 20
MAX_ROW_BYTES = 4 << 20
BITS = re.compile(r"\d+")


def chunk(begin, end, parts, index):
    """The split rule."""
    size = -(-(end - begin) // parts)
    return min(begin + index * size, end), min(begin + (index + 1) * size, end)


class Mesh:
    def __init__(self, text):
        axes, _, ranks = text.partition(" on ")
        axes = [] if axes == "single" else [axis.split("=") for axis in axes.split(",")]
        self.text, self.sizes = text, {name: int(size) for name, size in axes}
        if ".." in ranks:
            self.ranks = list(range(*map(int, ranks.split(".."))))
        else:
            self.ranks = [int(rank) for rank in ranks.strip("[]").split(",") if rank]
        self.ranks = self.ranks or list(range(math.prod(self.sizes.values())))

    def coordinates(self, rank):
        position, coordinates = self.ranks.index(rank), {}
        for axis, size in reversed(self.sizes.items()):
            position, coordinates[axis] = divmod(position, size)
        return coordinates


class Tensor:
    """One entry of `layouts`: `bf16[4096@tp/3, 1024 | flat(dp) | at(pp=1)]`."""

    def __init__(self, mesh, text):
        self.mesh = mesh
        self.dtype, inner = text.removesuffix("]").split("[")
        self.bits = 8 if self.dtype == "bool" else int(BITS.search(self.dtype)[0])
        dims, *suffixes = inner.split("|")
        self.dims, self.flat, self.pins = [], [], {}
        for dim in filter(None, map(str.strip, dims.split(","))):
            size, _, split = dim.partition("@")
            axes, _, groups = split.partition("/")
            self.dims.append((int(size), axes.split("+") if axes else [], int(groups or 1)))
        for suffix in map(str.strip, suffixes):
            kind, argument = suffix.removesuffix(")").split("(")
            if kind == "flat":
                self.flat = argument.split("+")
            else:
                axis, index = argument.split("=")
                self.pins[axis] = int(index)
        used = {axis for _, axes, _ in self.dims for axis in axes} | set(self.flat) | set(self.pins)
        self.shape = [size for size, _, _ in self.dims]
        self.free = [axis for axis in mesh.sizes if axis not in used]

    def is_held_by(self, rank):
        if rank not in self.mesh.ranks:
            return False
        here = self.mesh.coordinates(rank)
        return all(here[axis] == index for axis, index in self.pins.items())

    def first_holder(self):
        return next(rank for rank in self.mesh.ranks if self.is_held_by(rank))

    def pieces(self, rank):
        """The boxes the rank holds, each with the range of its elements that it keeps or `None`."""
        here = self.mesh.coordinates(rank)
        ranges = [self.ranges(here, *dim) for dim in self.dims]
        boxes = [[]]
        for dim in ranges:
            boxes = [box + [part] for box in boxes for part in dim]
        if not self.flat:
            return [(box, None) for box in boxes]
        local = [sum(end - begin for begin, end in dim) for dim in ranges]
        kept = self.nested(here, self.flat, 0, math.prod(local))
        pieces = []
        for box in boxes:
            inside = [at for at, element in enumerate(elements(box, ranges, local)) if kept[0] <= element < kept[1]]
            if inside:
                every = len(inside) == math.prod(end - begin for begin, end in box)
                pieces.append((box, None if every else (inside[0], inside[-1] + 1)))
        return pieces

    def ranges(self, here, size, axes, groups):
        found = []
        for group in range(groups):
            begin, end = self.nested(here, axes, *chunk(0, size, groups, group))
            if begin < end and found and found[-1][1] == begin:
                found[-1] = (found[-1][0], end)
            elif begin < end:
                found.append((begin, end))
        return found

    def nested(self, here, axes, begin, end):
        for axis in axes:
            begin, end = chunk(begin, end, self.mesh.sizes[axis], here[axis])
        return begin, end


def elements(box, ranges, local):
    """The numbers in the local tensor of a box's elements, in row-major order."""
    numbers = [0]
    for part, dim, size in zip(box, ranges, local, strict=True):
        first = sum(end - begin for begin, end in dim[: dim.index(part)])
        here = range(first, first + part[1] - part[0])
        numbers = [number * size + at for number in numbers for at in here]
    return numbers


def count(piece):
    box, kept = piece
    return kept[1] - kept[0] if kept else math.prod(end - begin for begin, end in box)


def grain(tensor, piece):
    """How many bytes lie between two allowed cuts, and the dim that is cut; elements if there is none."""
    box, kept = piece
    length = count(piece) * tensor.bits // 8
    if length < MIN_CUT_BYTES:
        return length, None
    extents = [end - begin for begin, end in box]
    dim = next((dim for dim, extent in enumerate(extents) if extent > 1), None)
    if kept is None and dim is not None:
        bits = math.prod(extents[dim + 1 :]) * tensor.bits
        if bits % 8 == 0 and bits // 8 <= MAX_ROW_BYTES:
            return bits // 8, dim
    return math.lcm(tensor.bits, 8) // 8, None


def part(tensor, piece, begin, end):
    """The bytes from `begin` to `end` of a piece, as a piece."""
    box, kept = piece
    unit, dim = grain(tensor, piece)
    if (begin, end) == (0, count(piece) * tensor.bits // 8):
        return piece
    if dim is not None:
        start = box[dim][0]
        return box[:dim] + [(start + begin // unit, start + end // unit)] + box[dim + 1 :], None
    first = kept[0] if kept else 0
    return box, (first + begin * 8 // tensor.bits, first + end * 8 // tensor.bits)


def share(stream, index, replicas):
    """The (name, tensor, piece) that a replica writes of a stream."""
    starts = [0]
    for _, tensor, piece in stream:
        starts.append(starts[-1] + count(piece) * tensor.bits // 8)

    def cut(index):
        position = starts[-1] * index // replicas
        for (_, tensor, piece), begin, end in zip(stream, starts, starts[1:]):
            if position < end:
                unit, _ = grain(tensor, piece)
                below = begin + (position - begin) // unit * unit
                above = min(below + unit, end)
                return below if position - below < above - position else above
        return starts[-1]

    first, last = cut(index), cut(index + 1)
    for (name, tensor, piece), begin, end in zip(stream, starts, starts[1:]):
        if max(begin, first) < min(end, last):
            yield name, tensor, part(tensor, piece, max(begin, first) - begin, min(end, last) - begin)


def entry(name, shape, piece):
    box, kept = piece
    if kept is None and [end - begin for begin, end in box] == shape:
        return name
    text = ",".join(f"{begin}:{end - begin}" for begin, end in box)
    return f"{name}@{text}" + (f"#{kept[0]}:{kept[1]}" if kept else "")


def writer_entries(manifest, rank):
    """The entries of a writer's data file: name → first and last byte, in file order."""
    tensors = {
        name: Tensor(Mesh(layout["mesh"]), text)
        for layout in manifest["layouts"]
        for name, text in layout["tensors"].items()
    }
    streams, items = {}, []
    for name, tensor in sorted(tensors.items()):
        if tensor.is_held_by(rank):
            stream = streams.setdefault((tensor.mesh.text, *tensor.free), [])
            stream.extend((name, tensor, piece) for piece in tensor.pieces(rank))
        if 0 in tensor.shape and tensor.first_holder() == rank:
            items.append((tensor.bits, name, name, 0))
    for stream in streams.values():
        if stream:
            _, tensor, _ = stream[0]
            index, replicas, here = 0, 1, tensor.mesh.coordinates(rank)
            for axis in tensor.free:
                index = index * tensor.mesh.sizes[axis] + here[axis]
                replicas *= tensor.mesh.sizes[axis]
            for name, tensor, piece in share(stream, index, replicas):
                items.append((tensor.bits, name, entry(name, tensor.shape, piece), count(piece) * tensor.bits // 8))
    for name, listed in manifest["listed"].items():
        bits = int(BITS.search(listed["dtype"])[0])
        for text in listed["pieces"].get(str(rank), []):
            box, _, kept = text.partition("#")
            box = [(int(at), int(at) + int(extent)) for at, extent in (dim.split(":") for dim in box.split(","))]
            piece = box, tuple(map(int, kept.split(":"))) if kept else None
            items.append((bits, name, entry(name, listed["shape"], piece), count(piece) * bits // 8))
    entries, offset = {}, 0
    for _, _, name, length in sorted(items, key=lambda item: (-item[0], item[1])):
        entries[name] = [offset, offset + length]
        offset += length
    return entries


def layout_hash(manifest, rank):
    """What a writer's part must say in `layout` (§7)."""
    texts = {}
    for layout in manifest["layouts"]:
        for name, text in layout["tensors"].items():
            if Tensor(Mesh(layout["mesh"]), text).is_held_by(rank):
                texts[name] = f"{name}\n{text}\n{layout['mesh']}"
    for name, listed in manifest["listed"].items():
        if str(rank) in listed["pieces"]:
            texts[name] = f"{name}\n{listed['dtype']}\n{listed['shape']}"
    aliases = [f"{name}\n= {of}" for name, of in manifest["aliases"].items() if of in texts]
    digests = [hashlib.sha256(text.encode()).digest()[:8] for text in [*texts.values(), *aliases]]
    return f"{sum(int.from_bytes(digest, 'little') for digest in digests) % 2**64:016x}"
