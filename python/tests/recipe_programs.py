"""Random programs that Paddle's AOA engine accepts, with the tensors they are about."""

from dataclasses import dataclass, field
from random import Random


@dataclass
class Case:
    """A program, its sources, and what is asked of it; `targets` is `None` for whatever is left over."""

    statements: list
    sources: dict
    targets: dict | None = None
    reverse: bool = False


def shards(shape, dtype="float32", axis=0, count=1):
    """A tensor in `count` equal shards along an axis, as both sides describe it."""
    local = list(shape)
    if count > 1:
        local[axis] //= count
    offsets = [[index * local[axis] if dim == axis else 0 for dim in range(len(shape))] for index in range(count)]
    return [dict(dtype=dtype, global_shape=list(shape), local_shape=local, global_offset=at) for at in offsets]


@dataclass
class Walk:
    """A walk through random primitive statements, which keeps the shapes of all tensors there are."""

    random: Random
    statements: list = field(default_factory=list)
    sources: dict = field(default_factory=dict)
    live: dict = field(default_factory=dict)
    count: int = 0

    def name(self):
        self.count += 1
        return self.random.choice(["t{}", "layer.{}.w", "x_{}.weight", "blk{}.a.b"]).format(self.count)

    def source(self, shape, dtype="float32"):
        name = "src." + self.name()
        self.sources[name] = shards(shape, dtype, 0, self.random.choice([c for c in (1, 2) if shape[0] % c == 0]))
        self.live[name] = tuple(shape)
        return name

    def pick(self):
        name = self.random.choice(sorted(self.live))
        return name, self.live[name]

    def rename(self):
        name, shape = self.pick()
        new = self.name()
        self.statements.append(f"{name} -> {new}")
        del self.live[name]
        self.live[new] = shape

    def copy(self):
        name, shape = self.pick()
        first, second = self.name(), self.name()
        self.statements += [f"{name} -> {first}", f"{name} -> {second}"]
        del self.live[name]
        self.live |= {first: shape, second: shape}

    def transpose(self):
        name, shape = self.pick()
        in_place = self.random.random() < 0.3
        new = name if in_place else self.name()
        self.statements.append(f"{name}^T -> {new}")
        del self.live[name]
        self.live[new] = shape[::-1]

    def permute(self):
        name, shape = self.pick()
        order = self.random.sample(range(len(shape)), len(shape))
        new = self.name()
        quote = self.random.choice("'\"")
        self.statements.append(f"{name} -> {new}, permute = {quote}{order}{quote}")
        del self.live[name]
        self.live[new] = tuple(shape[dim] for dim in order)

    def split(self):
        name, shape = self.pick()
        choices = [(axis, n) for axis, size in enumerate(shape) for n in (2, 3, 4) if size % n == 0]
        if not choices:
            return
        axis, parts = self.random.choice(choices)
        names = [self.name() for _ in range(parts)]
        if self.random.random() < 0.3:
            base = self.name() + ".part"  # `….w[0:2]` would be `….w_0`, the name of a master weight.
            names = [f"{base}_{index}" for index in range(parts)]
            written = f"{base}[0:{parts}]"
        else:
            written = ", ".join(names)
        self.statements.append(f"{name} -> {written}, axis={axis}")
        del self.live[name]
        part = tuple(size // parts if dim == axis else size for dim, size in enumerate(shape))
        self.live |= dict.fromkeys(names, part)

    def concat(self):
        name, shape = self.pick()
        axis = self.random.randrange(len(shape))
        fits = [
            other
            for other, have in self.live.items()
            if other != name and len(have) == len(shape) and all(a == b for d, (a, b) in enumerate(zip(have, shape)) if d != axis)
        ]
        names = [name, *self.random.sample(sorted(fits), min(len(fits), self.random.randint(1, 3)))]
        if len(names) < 2:
            return
        turned = self.random.random() < 0.2
        new = self.name()
        size = sum(self.live[other][axis] for other in names)
        joined = tuple(size if dim == axis else have for dim, have in enumerate(shape))
        if turned:
            self.statements.append(f"{', '.join(other + '^T' for other in names)} -> {new}, axis={len(shape) - 1 - axis}")
            joined = joined[::-1]
        else:
            self.statements.append(f"{','.join(names)}->{new},axis={axis}")
        for other in names:
            del self.live[other]
        self.live[new] = joined

    def step(self):
        weights = [(self.rename, 1), (self.copy, 1), (self.transpose, 2), (self.permute, 2), (self.split, 4), (self.concat, 5)]
        self.random.choices(*zip(*weights))[0]()


def primitives(seed):
    """Statements of every primitive, one after another, on tensors of one to three dims."""
    random = Random(seed)
    walk = Walk(random)
    for _ in range(random.randint(1, 4)):
        shape = [random.choice([2, 4, 6, 12]) for _ in range(random.randint(1, 3))]
        for _ in range(random.randint(1, 3)):
            walk.source(shape)
    for _ in range(random.randint(1, 12)):
        walk.step()
    # Casts come last: a cast tensor that is joined has no type that Paddle's engine knows.
    casts = {}
    for name in sorted(walk.live):
        if random.random() < 0.3:
            dtype = random.choice(["float16", "bfloat16", "float32"])
            if random.random() < 0.5:
                walk.statements.append(f"{name} -> {name}.cast, dtype='{dtype}'")
            else:
                walk.statements.append(f"{name} -> {name}.cast, src_dtype='float32', dst_dtype=\"{dtype}\"")
            casts[f"{name}.cast"] = dtype
            walk.live[f"{name}.cast"] = walk.live.pop(name)
    for _ in range(random.randint(0, 1)):
        unused = walk.source([3, 2])
        walk.statements.append(f"{unused} -> _")
        del walk.live[unused]
    if random.random() < 0.5:
        return Case(walk.statements, walk.sources)
    targets = {name: shards(shape, casts.get(name, "float32")) for name, shape in walk.live.items()}
    if random.random() < 0.5:
        walk.statements.append("_ -> fresh.weight")
        targets["fresh.weight"] = shards([5, 5])
    for name in list(targets):
        if random.random() < 0.4 and name != "fresh.weight" and name not in casts:
            for suffix in (".w_0", ".moment1_0", ".moment2_0"):
                targets[name + suffix] = targets[name]
    return Case(walk.statements, walk.sources, targets)


def macros(seed):
    """Layers and experts, stars, and the three fused layouts, with shards on both sides."""
    random = Random(seed)
    statements, sources, targets = [], {}, {}
    layers = random.sample(range(12), random.randint(1, 3))
    experts = random.sample(range(12), random.randint(1, 3))
    groups = random.choice([1, 2, 4])
    heads = groups * random.choice([1, 2, 3])
    head_dim, hidden = random.choice([2, 4]), random.choice([4, 8])
    degree = [d for d in (1, 2, 4) if groups % d == 0]
    source_shards, target_shards = random.choice(degree), random.choice(degree)
    axis = random.choice([0, 1])
    written = random.choice(["", f", axis={axis}"]) if axis == 1 else f", axis={axis}"

    def shape(size):
        return [size, hidden] if axis == 0 else [hidden, size]

    def tensor(size, count=1):
        return shards(shape(size), "float32", axis, count)

    heads_written = f"num_heads={heads}, num_key_value_groups={groups}"
    total = (heads + 2 * groups) * head_dim
    wide = 8 * random.choice([1, 3])
    kinds = ["qkv", "unqkv", "old", "unold", "reold", "ffn", "unffn", "reffn", "star", "experts", "offset"]
    for kind in random.sample(kinds, random.randint(1, 4)):
        p, e = f"{kind}.$LAYER_ID", "$EXPERT_ID"
        for layer in layers:
            s = f"{kind}.{layer}"
            if kind in ("qkv", "old"):
                sources |= {f"{s}.q": tensor(heads * head_dim), f"{s}.k": tensor(groups * head_dim), f"{s}.v": tensor(groups * head_dim)}
                targets[f"{s}.f"] = tensor(total, target_shards)
            elif kind in ("unqkv", "unold"):
                sources[f"{s}.f"] = tensor(total, source_shards)
                targets |= {f"{s}.q": tensor(heads * head_dim), f"{s}.k": tensor(groups * head_dim), f"{s}.v": tensor(groups * head_dim)}
            elif kind == "reold":
                sources[f"{s}.f"] = tensor(total, source_shards)
                targets[f"{s}.g"] = tensor(total, target_shards)
            elif kind == "ffn":
                sources |= {f"{s}.gate": tensor(wide), f"{s}.up": tensor(wide)}
                targets[f"{s}.f"] = tensor(2 * wide, target_shards)
            elif kind == "unffn":
                sources[f"{s}.f"] = tensor(2 * wide, source_shards)
                targets |= {f"{s}.gate": tensor(wide), f"{s}.up": tensor(wide)}
            elif kind == "reffn":
                sources[f"{s}.f"] = tensor(2 * wide, source_shards)
                targets[f"{s}.g"] = tensor(2 * wide, target_shards)
            elif kind == "star":
                sources |= {f"{s}.part{index}.w": tensor(4) for index in (3, 10, 2)}
                targets[f"{s}.all"] = tensor(12)
                statements.append(f"{s}.part*.w -> {s}.all, axis={axis}")
            elif kind == "experts":
                for expert in experts:
                    sources[f"{s}.{expert}.up"] = tensor(6)
                    targets[f"out.{layer}.{expert}.up"] = shards(shape(6)[::-1])
            elif kind == "offset":
                sources[f"offset.{layer + 1}.w"] = tensor(4)
                targets[f"shifted.{layer}.w"] = tensor(4)
        fused = {
            "qkv": f"{p}.q, {p}.k, {p}.v -> {p}.f, fused_qkv, {heads_written}{written}",
            "unqkv": f"{p}.f -> {p}.q, {p}.k, {p}.v, fused_qkv, {heads_written}{written}",
            "old": f"{p}.q, {p}.k, {p}.v -> {p}.f, fused_qkv_old, {heads_written}{written}",
            "unold": f"{p}.f -> {p}.q, {p}.k, {p}.v, fused_qkv_old, {heads_written}{written}",
            "reold": f"{p}.f -> {p}.g, fused_qkv_old, {heads_written}{written}",
            "ffn": f"{p}.gate, {p}.up -> {p}.f, fused_ffn{written}",
            "unffn": f"{p}.f -> {p}.gate, {p}.up, fused_ffn{written}",
            "reffn": f"{p}.f -> {p}.g, fused_ffn{written}",
            "experts": f"experts.$LAYER_ID.{e}.up^T -> out.$LAYER_ID.{e}.up",
            "offset": "offset.$LAYER_ID_OFFSET.w -> shifted.$LAYER_ID_OFFSET.w",
        }
        statements += [fused[kind]] if kind in fused else []
    # A macro that joins a single part leaves its temporary among the outputs of Paddle's engine, in the place of the result.
    single = groups == 1 or source_shards == 1
    if random.random() < 0.5 and not single:
        targets = None
    return Case(statements, sources, targets)


def reverses(seed):
    """Programs that are run from right to left: sources are what stands on the right."""
    random = Random(seed)
    groups = random.choice([1, 2, 4])
    heads = groups * random.choice([1, 2])
    axis = random.choice([0, 1])
    layers = random.sample(range(5), 2)

    def shape(size):
        return [size, 8] if axis == 0 else [8, size]

    statements, sources, targets = [], {}, {}
    for kind in random.sample(["qkv", "join", "cut", "turn", "cast", "permute", "ffn"], 3):
        for layer in layers:
            left, right = f"{kind}.{layer}", f"out.{kind}.{layer}"
            match kind:
                case "qkv":
                    sources[f"{right}.f"] = shards(shape(2 * (heads + 2 * groups)))
                    targets |= {f"{left}.q": shards(shape(2 * heads)), f"{left}.k": shards(shape(2 * groups)), f"{left}.v": shards(shape(2 * groups))}
                case "join":
                    sources[f"{right}.w"] = shards(shape(12))
                    targets |= {f"{left}.{n}": shards(shape(4)) for n in "abc"}
                case "cut":
                    sources |= {f"{right}.{n}": shards(shape(4)) for n in "abc"}
                    targets[f"{left}.w"] = shards(shape(12))
                case "turn":
                    sources[f"{right}.w"] = shards([8, 3])
                    targets[f"{left}.w"] = shards([3, 8])
                case "cast":
                    sources[f"{right}.w"] = shards([8, 3], "bfloat16")
                    targets[f"{left}.w"] = shards([8, 3], "float32")
                case "permute":
                    sources[f"{right}.w"] = shards([4, 2, 3])
                    targets[f"{left}.w"] = shards([2, 3, 4])
                case "ffn":
                    sources[f"{right}.w"] = shards(shape(8), "float32", axis, random.choice([1, 2, 4]))
                    targets[f"{left}.w"] = shards(shape(8), "float32", axis, random.choice([1, 2, 4]))
        a, b = f"{kind}.$LAYER_ID", f"out.{kind}.$LAYER_ID"
        statements.append(
            {
                "qkv": f"{a}.q, {a}.k, {a}.v -> {b}.f, fused_qkv, num_heads={heads}, num_key_value_groups={groups}, axis={axis}",
                "join": f"{a}.a, {a}.b, {a}.c -> {b}.w, axis={axis}",
                "cut": f"{a}.w -> {b}.a, {b}.b, {b}.c, axis={axis}",
                "turn": f"{a}.w^T -> {b}.w",
                "cast": f"{a}.w -> {b}.w, src_dtype='float32', dst_dtype='bfloat16'",
                "permute": f"{a}.w -> {b}.w, permute='[2, 0, 1]'",
                "ffn": f"{a}.w -> {b}.w, fused_ffn, axis={axis}",
            }[kind]
        )
    if random.random() < 0.5 and groups > 1:
        targets = None
    return Case(statements, sources, targets, reverse=True)
