"""Whatever a world raises, in whatever it is asked, ends no task and no server: at most its entity stands still."""

import asyncio  # noqa: TID251 — a world may use it
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors.base.errors import is_stopping
from batonpass.actors.base.interrupts import received
from batonpass.actors.core.system import System
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.table import Holdings, WorldFailed
from batonpass.simserver.world.api import takes
from tests.simserver.entity.test_long_ticks import ASKED, Server, Slow
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import BALL, feed, inspect, ticks

pytestmark = pytest.mark.usefixtures("either_kind")


class Panic(BaseException):
    """As pyo3's `PanicException`: code in Rust has panicked."""


class Misleading(BaseExceptionGroup[BaseException]):
    """A group that fails whenever anybody asks it something."""

    @property
    def exceptions(self) -> Any:
        raise GeneratorExit

    def derive(self, excs: Any) -> Any:
        raise GeneratorExit

    def __str__(self) -> str:
        raise GeneratorExit


MADE_UP: dict[str, Callable[[], BaseException]] = {
    "what is no Exception": Panic,
    "sys.exit": lambda: SystemExit(3),
    "Ctrl-C that nobody pressed": KeyboardInterrupt,
    "the end of a generator": GeneratorExit,
    "a cancellation of trio's": trio.Cancelled._create,
    "a cancellation of asyncio's": asyncio.CancelledError,
    "several of them": lambda: BaseExceptionGroup("all", [GeneratorExit(), KeyboardInterrupt(), SystemExit()]),
    "a group in a group": lambda: BaseExceptionGroup("", [BaseExceptionGroup("", [trio.Cancelled._create()])]),
    "a group of its own": lambda: Misleading("", [GeneratorExit()]),
}
raised_as = pytest.mark.parametrize("make", MADE_UP.values(), ids=MADE_UP)


class Raising(Slow):
    """Raises in whatever it is told to. Each is made anew: what was raised keeps all that its frames know."""

    make: Callable[[], BaseException]

    def _takes(self, method: str, s: float = 0) -> None:
        if method == self.slow:
            raise self.make()


def raising(make: Callable[[], BaseException], system: Any = None) -> Server:
    world = Raising()
    world.make = make
    return Server(system, world=world)


@pytest.fixture(autouse=True)
def in_a_server() -> Iterator[None]:
    """There SIGINT is a message."""
    with received():
        yield


@raised_as
@pytest.mark.parametrize("method", ["step", "destination", "may_sleep"])
async def test_failures_row_41_whatever_a_world_raises_in_a_tick_stops_its_entity_and_nobody_else(
    system: System, method: str, make: Callable[[], BaseException]
) -> None:
    server = raising(make, system)
    actor = server.stage.start()
    server.world.slow = method
    feed(actor, 1)
    ticks(actor)
    seen = await inspect(actor)
    assert seen["broken"].startswith(type(make()).__name__)
    assert (seen["tick"], seen["pending_inputs"]) == (1, 1)
    assert server.stage.batch is not None or actor.ref.alive
    server.world.slow = ""
    assert actor.life.release()
    ticks(actor)
    assert (await inspect(actor))["pending_inputs"] == 0


@raised_as
@pytest.mark.parametrize("method", sorted(ASKED))
def test_failures_row_41_whatever_a_world_raises_in_anything_else_ends_nothing(
    method: str, make: Callable[[], BaseException]
) -> None:
    server = raising(make)
    life = server.life()
    server.world.slow = method
    ASKED[method](server, life)
    assert bool(life.quarantine_reason) == (method == "migrate")
    failed = {"migrate": "world_failed", "affinity": "world_failed", "immovable": "world_failed", "may_sleep": ""}
    assert not (what := failed.get(method, "part_failed")) or server.stage.counts[what] == 1


@raised_as
def test_whatever_a_spawn_raises_refuses_that_entity(make: Callable[[], BaseException]) -> None:
    server = raising(make)
    server.world.slow = "spawn"
    holdings = Holdings(server.stage.environment, Written())
    with pytest.raises(WorldFailed, match=type(make()).__name__):
        holdings.spawn(BALL, "ball", {}, Fence(1))
    assert len(holdings) == 0


@raised_as
@pytest.mark.parametrize("said", ["kinds", "schema_version", "participants"])
def test_a_world_that_fails_to_say_what_it_takes_takes_nothing(said: str, make: Callable[[], BaseException]) -> None:
    def fail(_: Any) -> Any:
        raise make()

    server = raising(make)
    life = server.life()
    world = type("Says", (Raising,), {said: property(fail, lambda _self, _value: None)})()
    assert takes(world, "ball", 1) == (said == "participants")
    object.__setattr__(server.stage.environment, "world", world)
    life._bring_up_to_date()
    assert bool(life.quarantine_reason) == (said != "participants")
    life.end()


def test_what_was_made_up_does_not_end_a_server_and_signals_do() -> None:
    seen: list[bool] = []

    async def serve() -> None:
        await trio.testing.wait_all_tasks_blocked()
        seen.extend(is_stopping(make()) for make in MADE_UP.values())

    run_until_signalled("alpha.s1", serve)
    assert seen == [False] * len(MADE_UP)


def test_where_python_raises_ctrl_c_it_is_one_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.actors.base.interrupts._receivers", 0)
    stopping = {name for name, make in MADE_UP.items() if is_stopping(make())}
    assert stopping == {"Ctrl-C that nobody pressed", "several of them"}
    with suppress(KeyboardInterrupt), received():
        raise KeyboardInterrupt
    assert is_stopping(KeyboardInterrupt()), "nobody receives it any more"
