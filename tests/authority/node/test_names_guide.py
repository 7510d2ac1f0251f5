"""The guide to actors on a cluster of one's own is true: three nodes run its program, and outlive a holder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import trio

from batonpass.actors import Exit
from batonpass.tree import Member, NoQuorum
from tests.tree.instances import free_ports

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "actor-cluster.md"


def program() -> dict[str, Any]:
    """What the page's program defines."""
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(found.group(1), str(PAGE), "exec"), scope)  # noqa: S102 - our own text
    return scope


async def test_a_name_is_taken_over_when_its_node_is_lost(tmp_path: Path) -> None:
    guide = program()
    members = tuple(Member(node, "127.0.0.1", port) for node, port in zip("abc", free_ports(3), strict=True))
    directory = guide["Directory"](tmp_path, ("a", "b", "c"))
    nodes: dict[str, Any] = {}
    scopes = {node: trio.CancelScope() for node in "abc"}

    async def run(node: str) -> None:
        with scopes[node]:
            async with trio.open_nursery() as nursery:
                secret = b"sixteen bytes or more"
                nodes[node] = await nursery.start(guide["run_node"], node, members, tmp_path, secret, directory)

    async def held(node: str) -> Any:
        """Who has the name; None also if that cannot be told now."""
        try:
            return await nodes[node][1].whereis("ledger")
        except NoQuorum:
            return None

    async def paid(node: str, amount: int) -> int:
        """What the vault holds; the name may be changing hands just now."""
        while True:
            try:
                answer = await guide["pay"](*nodes[node], amount)
            except (Exit, NoQuorum):
                answer = "not now"
            if isinstance(answer, int):
                return answer
            await trio.sleep(0.05)

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            for node in "ab":
                nursery.start_soon(run, node)
            while len(nodes) < 2 or await held("a") is None:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.05)
            nursery.start_soon(run, "c")
            while "c" not in nodes:  # noqa: ASYNC110 - it is started by a task of its own
                await trio.sleep(0.01)
            assert await paid("c", 5) == 5
            before = await held("c")
            scopes[before.node].cancel()
            assert await paid("c", 7) == 12, "the vault is the same, and another holds the name"
            after = await held("c")
            assert after.node != before.node
            assert after.fence > before.fence
            nursery.cancel_scope.cancel()
