"""Modules, optimizers and schedulers come back as they were, whatever wraps them, and whatever they already hold."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import cairn
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2, bias=False))


def train(module: Any, optimizer: Any, steps: int, seed: int = 0) -> float:
    generator = torch.Generator().manual_seed(seed)

    def loss() -> Any:
        optimizer.zero_grad()
        value = module(inputs).square().mean()
        value.backward()
        return value

    for _ in range(steps):
        inputs = torch.randn(5, 4, generator=generator)
        value = optimizer.step(loss)
    optimizer.zero_grad()
    return float(value.detach())


def saved(path: Path, state: Any) -> cairn.Checkpointer:
    checkpointer = cairn.Checkpointer(path)
    checkpointer.save(1, state, blocking=True)
    return checkpointer


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit; the order of keys does not count."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


OPTIMIZERS: dict[str, Any] = {
    "SGD without state": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, weight_decay=0.1),
    "AdamW with a tensor as learning rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, history_size=2),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_training_goes_on_as_if_it_had_never_stopped(make: Any, used: bool, tmp_path: Path) -> None:
    module = model()
    optimizer = make(module.parameters())
    train(module, optimizer, 3)
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})

    other = model(seed=9)
    resumed = make(other.parameters())
    if used:
        train(other, resumed, 2, seed=5)
    checkpointer.load(into={"model": other, "optim": resumed})
    assert all(parameter.grad is None for parameter in other.parameters())
    assert same(resumed.state_dict(), optimizer.state_dict())
    assert train(other, resumed, 2, seed=1) == train(module, optimizer, 2, seed=1)
    assert same(other.state_dict(), module.state_dict())


def test_state_is_named_after_parameters(tmp_path: Path) -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters())
    train(module, optimizer, 1)
    names = set(saved(tmp_path, {"model": module, "optim": optimizer}).open())
    assert {"model.0.weight", "optim.state.0.weight.exp_avg", "optim.state.1.bias.step"} <= names


def test_neither_the_order_of_parameters_nor_of_groups_matters(tmp_path: Path) -> None:
    def groups(module: Any, order: int) -> Any:
        slow, fast = list(module[0].parameters()), [*module[1].parameters(), *module[3].parameters()]
        both = [{"params": slow[::order], "lr": 0.5}, {"params": fast[::order], "lr": 0.25}]
        return torch.optim.Adam(both[::order])

    module, other = model(), model(seed=1)
    optimizer, resumed = groups(module, 1), groups(other, -1)
    train(module, optimizer, 2)
    saved(tmp_path, {"model": module, "optim": optimizer}).load(into={"model": other, "optim": resumed})
    assert [group["lr"] for group in resumed.param_groups] == [0.25, 0.5]
    for one, twin in zip(module.parameters(), other.parameters(), strict=True):
        assert same(optimizer.state[one], resumed.state[twin])


def test_parameters_grouped_otherwise_are_an_error_unless_the_load_is_loose(tmp_path: Path) -> None:
    module, other = model(), model(seed=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})
    split = [{"params": other[0].parameters()}, {"params": [*other[1].parameters(), *other[3].parameters()]}]
    into = {"model": other, "optim": torch.optim.SGD(split, lr=0.1)}
    with pytest.raises(cairn.KeyMismatch, match="`optim` groups its parameters otherwise"):
        checkpointer.load(into=into)
    assert not same(other.state_dict(), module.state_dict())
    checkpointer.load(into=into, strict=False)
    assert same(other.state_dict(), module.state_dict())


def test_an_optimizer_of_several_modules_names_state_by_their_paths(tmp_path: Path) -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
    (actor(torch.ones(3)).sum() + critic(torch.ones(3)).sum()).backward()
    optimizer.step()
    names = set(saved(tmp_path, {"nets": {"actor": actor, "critic": critic}, "optim": optimizer}).open())
    assert {"optim.state.nets.actor.weight.exp_avg", "optim.state.nets.critic.weight.exp_avg"} <= names


def test_an_optimizer_without_its_module_uses_its_own_names_or_numbers(tmp_path: Path) -> None:
    module = model()
    named, numbered = torch.optim.Adam(module.named_parameters()), torch.optim.Adam(module.parameters())
    train(module, named, 1)
    train(module, numbered, 1)
    names = set(saved(tmp_path, {"named": named, "numbered": numbered}).open())
    assert {"named.state.0.weight.step", "numbered.state.0.step", "numbered.state.4.step"} <= names


def test_state_of_a_replaced_parameter_is_refused(tmp_path: Path) -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters())
    train(module, optimizer, 1)
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(6, 4))
    with pytest.raises(cairn.StateError, match="in none of its parameter groups"):
        saved(tmp_path, {"model": module, "optim": optimizer})


def test_moments_that_the_checkpoint_lacks_are_missing(tmp_path: Path) -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[module[0].weight]["momentum_buffer"] = torch.zeros(6, 4)
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})
    train(module, optimizer, 1)
    with pytest.raises(cairn.KeyMismatch) as caught:
        checkpointer.load(into={"model": module, "optim": optimizer})
    assert "optim.state.3.weight.momentum_buffer" in caught.value.missing


def test_a_checkpoint_from_before_the_first_step_empties_the_state(tmp_path: Path) -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters())
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})
    train(module, optimizer, 2)
    checkpointer.load(into={"model": module, "optim": optimizer})
    assert not optimizer.state


def test_an_optimizer_that_only_looks_like_one_is_taken_apart_alike(tmp_path: Path) -> None:
    class Wrapped:
        def __init__(self, inner: Any) -> None:
            self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    module = model()
    inner = torch.optim.Adam(module.parameters())
    train(module, inner, 1)
    names = set(saved(tmp_path, {"model": module, "optim": Wrapped(inner)}).open())
    assert "optim.state.0.weight.exp_avg" in names


def test_wrappers_leave_no_trace(tmp_path: Path) -> None:
    plain = model()
    expected = saved(tmp_path / "plain", {"model": plain}).open()
    layered = copy.deepcopy(plain)
    layered[0] = torch.compile(layered[0])
    for name, wrapped in {
        "compiled": torch.compile(plain),
        "parallel": nn.DataParallel(plain),
        "both": nn.DataParallel(torch.compile(plain)),
        "layered": layered,
    }.items():
        checkpointer = saved(tmp_path / name, {"model": wrapped})
        assert list(checkpointer.open()) == list(expected), name
        fresh = model(seed=3)
        checkpointer.load(into={"model": fresh})
        assert same(fresh.state_dict(), plain.state_dict()), name


def test_a_module_called_module_keeps_its_name(tmp_path: Path) -> None:
    owner = nn.Module()
    owner.module = nn.Linear(2, 2)
    assert "model.module.weight" in saved(tmp_path, {"model": owner}).open()


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self, tied: bool = True) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
            if tied:
                self.head.weight = self.embedding.weight

    module = Tied()
    optimizer = torch.optim.Adam(module.parameters())
    module.head(module.embedding(torch.arange(8))).sum().backward()
    optimizer.step()
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})
    checkpoint = checkpointer.open()
    assert {"model.embedding.weight", "model.head.weight"} <= set(checkpoint) and len(checkpoint.aliases) == 1
    tied, untied = Tied(), Tied(tied=False)
    checkpointer.load(into={"model": tied, "optim": torch.optim.Adam(tied.parameters())})
    assert tied.head.weight is tied.embedding.weight and torch.equal(tied.head.weight, module.head.weight)
    checkpointer.load(into={"model": untied})
    assert torch.equal(untied.head.weight, module.head.weight)
    assert torch.equal(untied.embedding.weight, module.head.weight)


class Counting(nn.Module):
    """Has extra state: something plain, or something that changes its size."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.weight, self.extra = nn.Parameter(torch.ones(2)), extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


@pytest.mark.parametrize(
    ("extra", "fresh"),
    [({"seen": 3, "names": ("a", "b")}, {"seen": 0, "names": ()}), (torch.arange(5), torch.empty(0, dtype=torch.uint8))],
    ids=["plain", "tensor"],
)
def test_extra_state_is_put_back(extra: Any, fresh: Any, tmp_path: Path) -> None:
    other = nn.Sequential(Counting(fresh))
    saved(tmp_path, {"model": nn.Sequential(Counting(extra))}).load(into={"model": other})
    assert same(other[0].extra, extra)


def test_extra_state_that_is_not_plain_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="`model.0._extra_state`"):
        saved(tmp_path, {"model": nn.Sequential(Counting(object()))})


def test_tensors_that_a_hook_made_are_given_back_to_the_module(tmp_path: Path) -> None:
    class Doubled(nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return {key: value * 2 for key, value in super().state_dict(*args, **kwargs).items()}

        def load_state_dict(self, state: Any, *args: Any, **kwargs: Any) -> Any:
            return super().load_state_dict({key: value / 2 for key, value in state.items()}, *args, **kwargs)

    module, other = Doubled(3, 3), Doubled(3, 3)
    checkpointer = saved(tmp_path, {"model": module})
    assert torch.equal(checkpointer.open()["model.weight"].torch(), module.weight * 2)
    checkpointer.load(into={"model": other})
    assert torch.equal(other.weight, module.weight)


def test_lazy_modules_are_refused_until_they_have_a_shape(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="`model.0.weight` has no shape yet"):
        saved(tmp_path, {"model": nn.Sequential(nn.LazyLinear(3))})


def test_a_module_on_the_meta_device_is_refused_by_name(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = model()
    with pytest.raises(cairn.StateError, match="`model.0.weight` is on the meta device"):
        saved(tmp_path, {"model": empty})


SCHEDULERS: dict[str, Any] = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 3, 3, 5]),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)], [3]
    ),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers_go_on_where_they_stopped(make: Any, tmp_path: Path) -> None:
    def parts() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, make(optimizer)

    def go(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
        rates = []
        for _ in range(steps):
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    optimizer, scheduler = parts()
    go(optimizer, scheduler, 2)
    checkpointer = saved(tmp_path, {"optim": optimizer, "schedule": scheduler})
    expected = go(optimizer, scheduler, 5)
    optimizer, scheduler = parts()
    checkpointer.load(into={"optim": optimizer, "schedule": scheduler})
    assert go(optimizer, scheduler, 5) == expected


def test_a_gradient_scaler_keeps_its_scale(tmp_path: Path) -> None:
    scaler, other = (torch.amp.GradScaler("cpu", init_scale=scale) for scale in (64.0, 8.0))
    saved(tmp_path, {"scaler": scaler}).load(into={"scaler": other})
    assert other.state_dict() == scaler.state_dict()
