"""The world of docs/guides/batch-worlds.md, as it stands there."""

import re
from pathlib import Path
from typing import Any

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.world.validation import flaw
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "batch-worlds.md"


def test_the_world_of_the_page_drifts_turns_and_goes_on_elsewhere() -> None:
    names: dict[str, Any] = {}
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(source, names)  # noqa: S102 — our own page
    nobody: Any = None
    here, there = (Stage(nobody, name, names["Drifters"]()) for name in ("alpha.s1", "alpha.s2"))
    assert flaw(here.world) == ""
    holdings, others = (Holdings(stage.environment, Written()) for stage in (here, there))
    assert holdings.batch is not None
    assert others.batch is not None
    life = holdings.spawn(BALL, "drifter", {"v": [2.0, 0.0]}, Fence(1), Ownership(ADA, 1)).life
    stays = holdings.spawn("alpha.other", "drifter", {}, Fence(1)).life
    holdings.batch.tick()
    life.take_input(ADA, 1, 1, b"turn")
    holdings.batch.tick()
    assert [ack.applied for _, ack in here.acks] == [1]
    frozen = life.freeze()
    assert frozen is not None
    holdings.leave(BALL, "alpha.s2", Fence(2))
    moved = others.start(BALL, Fence(2), EntitySnapshot.decode(frozen.state)).life
    others.batch.tick()
    holdings.batch.tick()
    assert (moved.tick, moved.world) == (3, {"p": [-0.1, 0.0], "v": [-2.0, 0.0]})
    assert (stays.tick, stays.world["v"]) == (3, [1.0, 0.0])
