"""Small games for tests of the driver, and ways to run games."""

from collections.abc import Callable, Iterable
from typing import Any

from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.entity import SimEntity
from tests.simserver.sync.lockstep.bouncers import Bouncers
from tests.simserver.sync.lockstep.write_vectors import script

RESET = SimEvent(1, "_a", "_", "seed")
SCRIPT = script()


class Crate(SimEntity):
    n: int = 0
    x: float = 0.0
    items: tuple[Any, ...] = ()
    note: str | None = None

    def sim_enter(self) -> None:
        self.sim.said.append(f"enter {self.id}")
        self.sim.do("enter", self)

    def sim_tick(self) -> None:
        self.sim.said.append(f"tick {self.id}")
        self.sim.do("tick", self)

    def sim_exit(self) -> None:
        self.sim.said.append(f"exit {self.id}")
        self.sim.do("exit", self)


class Yard(SimDriver):
    """Says what is called, and does what a test says: `doing` gets the driver, the moment, and the entity."""

    kinds = (Crate,)

    def __init__(self, doing: Callable[..., object] | None = None, **options: Any) -> None:
        self.said: list[str] = []
        self.doing = doing
        super().__init__(**options)

    def do(self, moment: str, entity: Crate | None = None) -> None:
        if self.doing is not None:
            self.doing(self, moment, entity)

    def on_reset(self, seed: str) -> None:
        self.said.append(f"reset {seed}")
        self.do("reset")

    def on_connect(self, public_id: str) -> None:
        self.said.append(f"connect {public_id}")

    def on_disconnect(self, public_id: str) -> None:
        self.said.append(f"disconnect {public_id}")

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        self.said.append(f"{type} {origin} {body}")
        self.do("event")

    def on_tick(self, tick: int) -> None:
        self.said.append(f"on_tick {tick}")
        self.do("on_tick")


def yard_with_a_crate(**fields: Any) -> Yard:
    """A game of one crate, which can be given anything to do afterwards."""
    yard = Yard(lambda sim, moment, _: sim.spawn(Crate, **fields) if moment == "reset" else None)
    yard.step([RESET])
    yard.doing = None
    yard.said.clear()
    return yard


def steps_of(events: Iterable[SimEvent], ticks: int) -> list[list[SimEvent]]:
    """The events of ticks 1 to `ticks`."""
    rows: list[list[SimEvent]] = [[] for _ in range(ticks)]
    for event in events:
        if event.tick <= ticks:
            rows[event.tick - 1].append(event)
    return rows


def hashes_of(game: SimDriver, ticks: int) -> list[str]:
    """The hashes of the first ticks of the script of the vectors."""
    return [game.step(events) for events in steps_of(SCRIPT, ticks)]


BOUNCERS_HASHES = [Bouncers().state_hash(), *hashes_of(Bouncers(), 400)]
"""Of `Bouncers` at ticks 0 to 400."""
