"""Recipes against Paddle's AOA engine: every valid program gives the same elements, and every hole of it is closed."""

import json

import numpy as np
import pytest
from recipe_programs import Case, macros, primitives, reverses, shards

aoa = pytest.importorskip("paddle.distributed.flex_checkpoint.aoa.aoa_engine")
STATE = (".w_0", ".moment1_0", ".moment2_0")


@pytest.fixture
def explain(cairn, tmp_path):
    """Explains a program with the command, as another program would."""

    def run(case, exit_code=0):
        file = tmp_path / "program.json"
        request = dict(statements=case.statements, reverse=case.reverse, sources=case.sources, targets=case.targets)
        file.write_text(json.dumps(request))
        return cairn.json("recipe", "explain", file, exit_code=exit_code)

    return run


class Numbered:
    """Sources whose elements are all different numbers, and the casts each element has been through."""

    def __init__(self, sources):
        self.start, self.sources = 0, {}
        for name, parts in sorted(sources.items()):
            for suffix in ("", *STATE):
                self.sources.setdefault(name + suffix, self.number(parts[0]["global_shape"]))
        self.dtypes = {name: parts[0]["dtype"] for name, parts in sources.items()}

    def number(self, shape):
        count = int(np.prod(shape))
        self.start += count
        return np.arange(self.start - count, self.start).reshape(shape)

    def cut(self, name, offset, extent):
        return self.sources[name][tuple(slice(o, o + n) for o, n in zip(offset, extent))]


def ours(target, numbered):
    """The numbers of a target's elements, and the casts that each went through."""
    elements = np.full(target["shape"], -1)
    casts = np.full(target["shape"], "", dtype=object)
    for piece in target["pieces"]:
        box = numbered.cut(piece["source"], piece["source_offset"], piece["source_extent"])
        done = []
        for step in piece["steps"]:
            [(kind, value)] = step.items()
            match kind:
                case "permute":
                    box = box.transpose(value)
                case "reshape":
                    box = box.reshape(value)
                case "slice":
                    box = box[tuple(slice(o, o + n) for o, n in zip(value["offset"], value["extent"]))]
                case "cast":
                    done.append(value)
                case _:
                    raise AssertionError(f"no step of AOA: {step}")
        place = tuple(slice(o, o + n) for o, n in zip(piece["offset"], piece["extent"]))
        assert (elements[place] == -1).all(), "an element has two pieces"
        elements[place] = box
        casts[place] = " ".join(done)
    assert (elements >= 0).all(), "an element has no piece"
    return elements, casts


def description(name, parts):
    part = parts[0]
    return [
        aoa.ShardedWeightDesc(name, tuple(p["local_shape"]), tuple(p["global_shape"]), tuple(p["global_offset"]), part["dtype"])
        for p in parts
    ]


def engine_of(case):
    def described(tensors):
        return None if tensors is None else {name: description(name, parts) for name, parts in tensors.items()}

    config = {"aoa_statements": case.statements, "aoa_config_reverse": case.reverse, "enable_traceback": False}
    return aoa.AOAEngine(config, described(case.sources), described(case.targets))


def theirs(engine, name, parts, numbered):
    """The same of a target, as Paddle's engine maps it."""
    shape = tuple(parts[0]["global_shape"])
    elements = np.full(shape, -1)
    casts = np.full(shape, "", dtype=object)
    whole = aoa.ShardedWeightDesc(name, shape, shape, (0,) * len(shape), parts[0]["dtype"])
    for entry in engine.find_shard_sources(whole):
        source, target = entry.source_slice, entry.target_slice
        box = numbered.cut(source.key, source.global_offset, source.local_shape)
        done, dtype = [], numbered.dtypes.get(source.key)
        for step in entry.postprocess_list or []:
            if step.startswith("["):
                box = box.transpose(json.loads(step))
            elif step != dtype:
                done.append(step)
                dtype = step
        place = tuple(slice(o, o + n) for o, n in zip(target.global_offset, target.local_shape))
        elements[place] = box
        casts[place] = " ".join(done)
    return elements, casts


def assert_same_as_paddle(case, explain):
    engine, mine, numbered = engine_of(case), explain(case), Numbered(case.sources)
    names = case.targets if case.targets is not None else engine.output_vars
    assert set(mine["targets"]) == set(names)
    for name, target in mine["targets"].items():
        parts = shards(target["shape"], target["dtype"])
        if case.targets is not None:
            assert (target["shape"], target["dtype"]) == (case.targets[name][0]["global_shape"], case.targets[name][0]["dtype"])
        if target["initialise"]:
            assert engine.output_vars[name] is None
            continue
        for got, wanted in zip(ours(target, numbered), theirs(engine, name, parts, numbered)):
            assert got.shape == wanted.shape
            assert (got == wanted).all(), f"{name}: {case}"


@pytest.mark.parametrize("generate", [primitives, macros, reverses])
@pytest.mark.parametrize("seed", range(80))
def test_a_valid_program_gives_the_same_as_paddle(generate, seed, explain):
    assert_same_as_paddle(generate(seed), explain)


def test_statements_glued_together_are_two(explain):
    both = Case(["a -> b, c, axis=0 d -> e, permute='[]' f -> g"], {"a": shards([4, 2]), "d": shards([2, 3]), "f": shards([1])})
    assert_same_as_paddle(both, explain)


def whole(name, shape, source=None):
    """The one piece of a target that is a source, as it is."""
    zero = [0] * len(shape)
    return [dict(offset=zero, extent=shape, source=source or name, source_offset=zero, source_extent=shape, steps=[])]


def refused(case, explain):
    error = explain(case, exit_code=1)["error"]
    assert error["message"] and set(error) >= {"kind", "message", "hint", "statement"}
    return error


class TestHoles:
    """Each thing that Paddle's engine gets wrong, and what we say instead."""

    def test_a_cast_to_bfloat16_is_no_float16(self, explain):
        case = Case(["a -> b, dtype='bfloat16'"], {"a": shards([2])}, {"b": shards([2], "float16")})
        theirs(engine_of(case), "b", case.targets["b"], Numbered(case.sources))  # Nothing is noticed.
        assert refused(case, explain)["kind"] == "dtype"

    def test_layers_may_have_different_numbers_of_experts(self, explain):
        sources = {f"l.{i}.e.{j}.w": shards([2]) for i, count in enumerate([1, 3]) for j in range(count)}
        case = Case(["l.$LAYER_ID.e.$EXPERT_ID.w -> m.$LAYER_ID.e.$EXPERT_ID.w"], sources)
        with pytest.raises(ValueError):
            engine_of(case)
        assert set(explain(case)["targets"]) == {"m.0.e.0.w", "m.1.e.0.w", "m.1.e.1.w", "m.1.e.2.w"}

    def test_a_placeholder_that_matches_nothing_is_an_error_unless_it_may(self, explain):
        case = Case(["layer.$LAYER_ID.w -> x.$LAYER_ID.w"], {"layers.0.w": shards([2])})
        engine_of(case)  # The statement vanishes.
        error = refused(case, explain)
        assert error["kind"] == "placeholder" and error["statement"] == case.statements[0]
        case.statements[0] += ", optional=true"
        assert set(explain(case)["targets"]) == {"layers.0.w"}

    def test_asking_for_a_master_weight_changes_nothing_for_its_parameter(self, explain):
        targets = {"b": shards([2], "bfloat16"), "b.w_0": shards([2])}
        case = Case(["a -> b"], {"a": shards([2], "bfloat16")}, targets)
        result = explain(case)["targets"]
        assert [result[name]["dtype"] for name in ("b", "b.w_0")] == ["bfloat16", "float32"]
        assert result["b.w_0"]["pieces"] == whole("a.w_0", [2])

    def test_joined_tensors_have_the_same_other_dims(self, explain):
        case = Case(["a, b -> c, axis=0"], {"a": shards([2, 3]), "b": shards([2, 4])})
        engine_of(case)
        assert refused(case, explain)["kind"] == "shape"

    def test_a_target_has_the_shape_it_is_declared_with(self, explain):
        case = Case(["a -> b"], {"a": shards([4, 2])}, {"b": shards([3, 2])})
        engine_of(case)
        assert refused(case, explain)["kind"] == "shape"
        assert refused(Case([], {"a": shards([4])}, {"a": shards([5])}), explain)["kind"] == "shape"

    @pytest.mark.parametrize("statements, target", [(["a -> _"], "a"), (["a -> b", "a -> _"], "b"), (["a -> _", "a -> b"], "b")])
    def test_a_dropped_source_feeds_no_target(self, statements, target, explain):
        case = Case(statements, {"a": shards([2])}, {target: shards([2])})
        assert engine_of(case).find_shard_sources(description(target, shards([2]))[0]) == []
        assert refused(case, explain)["kind"] == "dropped"

    def test_an_order_of_dims_has_each_once(self, explain):
        for order in ("[0,0]", "[0]", "[0,1,2]", "[0,2]"):
            assert refused(Case([f"a -> b, permute='{order}'"], {"a": shards([2, 3])}), explain)["kind"] == "shape"

    def test_src_dtype_is_compared_with_the_source(self, explain):
        case = Case(["a -> b, src_dtype='float16', dst_dtype='float32'"], {"a": shards([2], "bfloat16")}, {"b": shards([2])})
        engine_of(case)
        assert refused(case, explain)["kind"] == "dtype"

    def test_limits_are_lifted(self, explain):
        sources = {"a": shards([8, 3]), "b": shards([8, 5], "bfloat16")}
        case = Case(["a -> a, dtype='bfloat16'", "a, b -> c, axis=-1", "c^T -> d, e, axis=-2, sizes=[1, 7], permute=[1, 0]"], sources)
        result = explain(case)["targets"]
        assert {name: target["shape"] for name, target in result.items()} == {"d": [8, 1], "e": [8, 7]}

    def test_casts_leave_optimizer_state_alone_unless_asked(self, explain):
        sources = {"a": shards([2]), "a.w_0": shards([2]), "a.moment1_0": shards([2])}
        targets = {"b": shards([2], "bfloat16"), "b.w_0": shards([2]), "b.moment1_0": shards([2])}
        case = Case(["a -> b, dtype='bfloat16'"], sources, targets)
        result = explain(case)["targets"]
        assert result["b"]["pieces"][0]["steps"] == [{"cast": "bfloat16"}]
        assert result["b.w_0"]["pieces"] == whole("a.w_0", [2])
        case = Case(["a -> b, dtype='bfloat16', cast_state=true"], sources)
        assert explain(case)["targets"]["b.w_0"]["dtype"] == "bfloat16"

    def test_temporaries_replace_no_tensor(self, explain):
        sources = {"w1": shards([2, 4]), "k": shards([2, 2]), "v": shards([2, 2]), "w10": shards([3, 3])}
        case = Case(["w1, k, v -> f, fused_qkv, num_heads=2, num_key_value_groups=1", "w10 -> x"], sources)
        assert engine_of(case).output_vars["x"].slices[0][0] == "w1"
        assert explain(case)["targets"]["x"]["pieces"] == whole("w10", [3, 3])

    @pytest.mark.parametrize("groups", [2, 6])
    def test_heads_that_shards_cannot_share_alike_are_an_error(self, groups, explain):
        case = Case(
            [f"f -> g, fused_qkv_old, num_heads=12, num_key_value_groups={groups}"],
            {"f": shards([2, 4 * (12 + 2 * groups)], axis=1, count=4)},
            {"g": shards([2, 4 * (12 + 2 * groups)])},
        )
        with pytest.raises((AssertionError, SyntaxError)):
            engine_of(case)
        error = refused(case, explain)
        assert error["kind"] == "attribute" and "shards" in error["message"]

    def test_a_macro_of_one_part_gives_its_result_and_no_temporary(self, explain):
        case = Case(["f -> gate, up, fused_ffn"], {"f": shards([2, 4])})
        assert set(engine_of(case).output_vars) != {"gate", "up"}
        assert set(explain(case)["targets"]) == {"gate", "up"}

    def test_one_source_may_feed_several_targets(self, explain):
        result = explain(Case(["a -> b, c, tie=true", "a^T -> d"], {"a": shards([2, 3])}))["targets"]
        assert result["b"]["pieces"] == result["c"]["pieces"] == whole("a", [2, 3])
        assert result["d"]["shape"] == [3, 2]

    def test_nothing_may_be_written_with_placeholders(self, explain):
        targets = {f"l.{i}.{n}": shards([2]) for i in (0, 1) for n in ("w", "b")}
        sources = {f"l.{i}.{n}": shards([2]) for i in (0, 1) for n in ("w", "rope")}
        case = Case(["_ -> l.$LAYER_ID.b", "l.$LAYER_ID.rope -> _"], sources, targets)
        result = explain(case)
        assert [result["targets"][f"l.{i}.b"]["initialise"] for i in (0, 1)] == [True, True]
        assert result["dropped"] == ["l.0.rope", "l.1.rope"] and result["warnings"] == []
