"""Writes the vectors beside it, for implementations in other languages.

Call it by `python -m tests.simserver.sync.lockstep.write_vectors`. The vectors are part of the specification in
docs/reference/lockstep.md: a change of them is a change of the protocol.
"""

import json
import random
import struct
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from batonpass.simserver.sync.lockstep.canonical import encode, state_hash
from batonpass.simserver.sync.lockstep.driver import SimEvent
from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.lockstep.turns import sine
from tests.simserver.sync.lockstep.bouncers import Bouncers

VECTORS: Final = Path(__file__).parent / "vectors"
TICKS: Final = 10_000


def generator() -> Any:
    rows = []
    for seed in ("", "5577006791947779410", "a", "été", "c5c0d3a8-0d8e-4a3f-9f0e-0a1b2c3d4e5f"):
        drawn = Xoshiro128.seeded(seed)
        row: dict[str, Any] = {"seed": seed, "state": drawn.state, "next": [drawn.next() for _ in range(20)]}
        row["below"] = [[n, [drawn.below(n) for _ in range(6)]] for n in (1, 2, 6, 1000, 2**31 + 1, 2**32 - 1, 2**32)]
        row["between"] = [
            [a, b, [drawn.between(a, b) for _ in range(6)]] for a, b in ((-5, 5), (0, 0), (-(2**31), 2**31 - 1))
        ]
        row["chance"] = [[a, b, [drawn.chance(a, b) for _ in range(10)]] for a, b in ((1, 3), (0, 5), (5, 5))]
        row["uniform"] = [drawn.uniform() for _ in range(6)]
        items = list(range(20))
        drawn.shuffle(items)
        row["shuffle"] = items
        row["after"] = drawn.state
        rows.append(row)
    return {"cases": rows, "sine": [sine(angle) for angle in range(1024)]}


VALUES: Final[list[Any]] = [
    *(None, True, False, 0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53 - 1),
    *(-1, -24, -25, -256, -257, -65537, -(2**32), -(2**32) - 1, -(2**53 - 1)),
    *(0.5, -0.5, 0.1, 1e-7, 5e-324, 1.7976931348623157e308, 9007199254740992.0, -9007199254740992.0, 1e21, 3.0, -0.0),
    *("", "a", "été", "e\u0301", "𝄞", "\x00\n", "x" * 24),
    *([], [1, [2, [3]]], {}, {"b": 1, "a": 2, "aa": 3, "é": 4, "z": None, "": 5}, {"x": {"B": [0.25], "A": {}}}),
]


def canonical() -> Any:
    cases = []
    for value in VALUES:
        data = encode(value)
        # JSON has no -0, and some of its readers no integral floats: `double` is the number's eight bytes.
        extra = {"double": struct.pack(">d", value).hex()} if isinstance(value, float) else {}
        cases.append({"value": value, **extra, "encoded": data.hex(), "hash": state_hash(data)})
    data = encode(bytes(range(5)))
    cases.append({"bytes": "0001020304", "encoded": data.hex(), "hash": state_hash(data)})
    return {"cases": cases}


def script() -> list[SimEvent]:
    """Events of four players who come, go and play for 10,000 ticks."""
    dice = random.Random(36)
    events = [SimEvent(1, "_a", "_", "5577006791947779410"), SimEvent(1, "_c", "_", "1")]
    here = {"1"}
    for tick in range(2, TICKS):
        if tick % 97 == 0:
            one = str(dice.randint(1, 4))
            events.append(SimEvent(tick, "_d" if one in here else "_c", "_", one))
            here ^= {one}
        for one in sorted(here):
            if dice.random() < 0.03:
                kind = dice.choice(["throw", "throw", "kick", "kick", "pop", "mix", "_a", "unknown"])
                events.append(SimEvent(tick, kind, one, str(dice.randint(-2000, 2000))))
    return events


def bouncers() -> Any:
    game, events = Bouncers(), script()
    by_tick = {tick: list(group) for tick, group in groupby(events, lambda event: event.tick)}
    hashes, snapshots = [[0, game.state_hash()]], {}
    for tick in range(TICKS):
        hashed = game.step(by_tick.get(tick + 1, ()))
        if (tick + 1) % 100 == 0 or tick < 5:
            hashes.append([tick + 1, hashed])
        if tick + 1 in (0, 1, 2, 100, 5000, TICKS):
            snapshots[tick + 1] = game.snapshot().hex()
    return {"ticks": TICKS, "events": events, "hashes": hashes, "snapshots": snapshots}


def write() -> None:
    for make in (generator, canonical, bouncers):
        text = (
            json.dumps(make(), ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[").replace("},{", "},\n{")
        )
        (VECTORS / f"{make.__name__}.json").write_text(text + "\n")


if __name__ == "__main__":
    write()
