"""A world that cannot be used is found out when its server starts, in one line that names what is wrong."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from batonpass.authority.node.config import ConfigError
from batonpass.simserver.world.api import load_world
from batonpass.simserver.world.participants import MAX_PART_NAME, MAX_PARTS

MODULE = "worlds_of_a_test"
SPEC = f"{MODULE}:Made"


def plain(*_: Any) -> None: ...


async def asynchronous(*_: Any) -> None: ...


def generator(*_: Any) -> Any:
    yield


class CalledLater:
    async def __call__(self, *_: Any) -> None: ...


PART = {"dehydrate": plain, "rehydrate": plain, "release": plain}
WORLD = {"spawn": plain, "step": plain, "destination": plain}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def refusal(module: Any, made: Any) -> str:
    module.Made = made
    with pytest.raises(ConfigError) as caught:
        load_world(SPEC, {})
    sentence = str(caught.value)
    assert sentence.startswith(f"world {SPEC!r} ")
    assert "\n" not in sentence
    return sentence


def without(key: str) -> dict[str, Any]:
    return {name: method for name, method in WORLD.items() if name != key}


FLAWS: list[tuple[dict[str, Any], str]] = [
    (without("spawn"), "has no `spawn`"),
    (without("destination"), "has neither `destination` nor `position`"),
    (without("step"), "neither `step` nor `advance`"),
    *(
        (WORLD | {name: wrong}, f"`{name}` is {sentence}")
        for name in ("spawn", "step", "advance", "destination", "may_sleep", "migrate", "affinity", "immovable")
        for wrong, sentence in [
            (asynchronous, "`async def`"),
            (partial(asynchronous, 1), "`async def`"),
            (CalledLater(), "`async def`"),
            (generator, "a generator"),
            (7, "7"),
        ]
    ),
    *((WORLD | {"schema_version": wrong}, f"`schema_version` is {wrong!r}") for wrong in ("2", -1, True, 1.5, None)),
    *((WORLD | {"kinds": wrong}, f"`kinds` is {wrong!r}") for wrong in ("ball", 7)),
    (WORLD | {"kinds": {7}}, "one of its `kinds` is 7"),
    (WORLD | {"participants": [1]}, "no mapping"),
    (WORLD | {"participants": {7: SimpleNamespace(**PART)}}, "named 7"),
    (WORLD | {"participants": {"": SimpleNamespace(**PART)}}, "named ''"),
    (WORLD | {"participants": {"x" * (MAX_PART_NAME + 1): SimpleNamespace(**PART)}}, "1 to 64 characters"),
    (WORLD | {"participants": dict.fromkeys(map(str, range(MAX_PARTS + 1)))}, "17 participants"),
    (WORLD | {"participants": {"warmth": object()}}, "`dehydrate` of its participant 'warmth' is missing"),
    (
        WORLD | {"participants": {"warmth": SimpleNamespace(**PART | {"release": asynchronous})}},
        "`release` of its participant 'warmth' is `async def`",
    ),
]


@pytest.mark.parametrize(("members", "sentence"), FLAWS)
def test_what_cannot_be_used_is_named(module: ModuleType, members: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(module, lambda: SimpleNamespace(**members))


@pytest.mark.parametrize("error", [ZeroDivisionError("first\nsecond"), SystemExit("first second")])
def test_whatever_a_constructor_raises_is_a_fault_of_the_configuration(
    module: ModuleType, error: BaseException
) -> None:
    def made() -> None:
        raise error

    assert f"{type(error).__name__}: first second" in refusal(module, made)


def test_whatever_the_import_raises_is_a_fault_of_the_configuration(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for number, line in enumerate(["import sys; sys.exit(3)", "1 / 0", "def"]):
        (tmp_path / f"broken_world_{number}.py").write_text(line, encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"world 'broken_world_{number}:Made' cannot be loaded: \w+: "):
            load_world(f"broken_world_{number}:Made", {})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"may_sleep": plain, "migrate": plain, "advance": plain, "affinity": partial(plain, 1), "immovable": plain},
        {"participants": {"warmth": SimpleNamespace(**PART)}},
        {"schema_version": 2, "kinds": {"ball": 1}},
        {"schema_version": 0, "kinds": ()},
    ],
)
def test_a_world_with_what_it_needs_is_loaded(module: Any, more: dict[str, Any]) -> None:
    made = SimpleNamespace(**WORLD | more)
    module.Made = lambda: made
    assert load_world(SPEC, {}) is made


@pytest.mark.parametrize(
    "spec", ["batonpass.simserver.world.demo_balls:Balls", "batonpass.scenarios.judge.clocks:Clockwork"]
)
def test_the_worlds_that_are_here_are_loaded(spec: str) -> None:
    assert load_world(spec, {}) is not None
