"""What the documentation says of the code is true: generated tables and examples; tests/docs has the rest."""

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import TABLE, OutgoingPhase
from batonpass.homeserver.rest.errors import REASON_STATUS
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.world.participants import dehydrated, rehydrate, release
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried, Step
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import Stage

ROOT = Path(__file__).parent.parent


def outgoing_table() -> str:
    """The transition table of the old authority as Markdown: a row per phase, a column per event."""
    events = list(dict.fromkeys(event for _, event in TABLE))
    lines = ["| phase | " + " | ".join(event.__name__ for event in events) + " |", "|---" * (len(events) + 1) + "|"]
    for phase in OutgoingPhase:
        cells = [str(TABLE.get((phase, event), "–")) for event in events]
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_table_of_the_old_authority_is_the_one_in_the_code() -> None:
    text = (ROOT / "docs" / "reference" / "transfer.md").read_text(encoding="utf-8")
    written = text.partition("<!-- outgoing table -->\n")[2].partition("<!-- end of outgoing table -->")[0]
    assert written.strip() == outgoing_table()


def reasons_table() -> str:
    """Every reason of refusal as Markdown: its code, its HTTP status, and the sentence beside it in the code."""
    tree = ast.parse((ROOT / "authority" / "errors.py").read_text(encoding="utf-8"))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Reason"]
    lines = ["| code | status | meaning |", "|---|---|---|"]
    for name, text in pairwise(body):
        match name, text:
            case ast.Assign(targets=[ast.Name(id=member)]), ast.Expr(value=ast.Constant(value=str(meaning))):
                reason = Reason[member]
                lines.append(
                    f"| `{reason}` | {REASON_STATUS.get(reason, 409)} | {' '.join(meaning.split()).rstrip('.')} |"
                )
            case _:
                pass
    assert len(lines) == len(Reason) + 2, "every reason has a sentence"
    return "\n".join(lines)


def test_the_table_of_reasons_is_the_one_in_the_code() -> None:
    text = (ROOT / "docs" / "reference" / "transfer.md").read_text(encoding="utf-8")
    written = text.partition("<!-- reasons table -->\n")[2].partition("<!-- end of reasons table -->")[0]
    assert written.strip() == reasons_table()


def test_the_world_in_the_page_of_worlds_is_one() -> None:
    text = (ROOT / "docs" / "reference" / "world.md").read_text(encoding="utf-8")
    source = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(source, "world.md", "exec"), names)  # noqa: S102 — the example from our own page
    world = names["Counters"]()
    state = world.spawn("counter", {"start": 3})
    assert world.step(state, [PendingInput("alpha.ada", 1, b"xy")], 0.05) == {"count": 5}
    assert world.destination(state, "alpha.s1", 10) is None


def test_the_die_in_the_page_of_worlds_is_thrown_by_its_timer() -> None:
    text = (ROOT / "docs" / "reference" / "world.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    sources = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[:2]
    exec(compile("".join(sources), "world.md", "exec"), names)  # noqa: S102 — as above
    world, state, carried, drawn = names["Dice"](), {"count": 0}, Carried.of_new("alpha.die"), []
    for tick in range(1, 42):
        step = Step(carried, tick)
        state = world.advance(state, [], 0.05, step)
        carried = step.carried()
        drawn.append(carried.drawn)
        assert 1 <= state["count"] <= 6
    assert (drawn[0], drawn[19], drawn[20], drawn[39], drawn[40]) == (1, 1, 2, 2, 3)


def test_the_participant_in_the_page_of_worlds_carries_what_it_keeps() -> None:
    text = (ROOT / "docs" / "reference" / "world.md").read_text(encoding="utf-8")
    world_source, _, source = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[:3]
    names: dict[str, Any] = {}
    exec(compile(world_source + source, "world.md", "exec"), names)  # noqa: S102 — as above
    here, there = names["Heated"](), names["Heated"]()
    here.participants["warmth"].kept["alpha.stove"] = [1, 2]
    parts = dehydrated(here, "alpha.stove", lambda: {"count": 3}, 100, pytest.fail)
    rehydrate(there, "alpha.stove", {"count": 3}, parts, lambda _what: None)
    release(here, "alpha.stove", pytest.fail)
    kept = [world.participants["warmth"].kept for world in (here, there)]
    assert kept == [{}, {"alpha.stove": [1, 2]}]


@given(st.lists(st.sampled_from(["round", "spawn", "leave", "resume", "take"]), max_size=30), st.integers(1, 6))
def test_the_mirror_in_the_page_of_the_feed_shows_what_there_is_also_when_it_was_slow(
    did: list[str], bound: int
) -> None:
    text = (ROOT / "docs" / "reference" / "commit-feed.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    (source,) = (one for one in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "class Mirror" in one)
    exec(compile(source, "commit-feed.md", "exec"), names)  # noqa: S102 — as above
    actors: Any = None
    stage = Stage(actors)
    table = Holdings(stage.environment, Written())
    mirror, follower, epoch = names["Mirror"](table), table.feed.follow("mirror", lambda: None, bound), 1
    for number, what in enumerate([*did, "take"]):
        living = next(iter(table), None)
        epoch += 1
        if what == "spawn":
            table.spawn(f"alpha.e{number}", "ball", {}, Fence(epoch))
        elif what == "round":
            table.feed.round_begins(number)
            for holding in table:
                holding.life.commit({**holding.life.world, "p": [number, 0, 0]}, now_ns=1)
            table.feed.round_is_over()
        elif what == "leave" and living is not None:
            table.leave(living.id, "alpha.s2", Fence(epoch))
        elif what == "resume" and living is not None:
            living.life.freeze()
            living.resume(Fence(epoch))
        elif what == "take":
            while (batch := follower.take()) is not None:
                mirror.take(batch)
            shown = {entity: (fence, tick, state) for entity, (fence, tick, state) in mirror.known.items()}
            assert shown == {one.id: (one.fence, one.life.tick, one.life.world) for one in table}
