"""The actors of a real homeserver over HTTP: its supervision tree is seen, and heals when an operator ends a part."""

import trio

from tests.homeserver.served import Home


def operator(home: Home) -> dict[str, str]:
    return {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}


async def test_the_supervision_tree_is_seen(alpha: Home) -> None:
    view = await alpha.api.get("/v1/actors")
    assert view["node"] == "alpha.h1"
    rows = {row["pid"]: row for row in view["actors"]}
    (root,) = [row for row in rows.values() if row["names"] == ["root"]]
    assert all(row["parent"] in rows for row in rows.values() if row is not root)
    labels = " ".join(row["label"] for row in rows.values())
    for part in ("service 'replica'", "service 'rest'", "service 'link'"):
        assert part in labels


async def test_looking_inside_takes_the_operator_token_and_shows_no_secret(alpha: Home) -> None:
    pids = [row["pid"] for row in (await alpha.api.get("/v1/actors"))["actors"]]
    await alpha.api.refused(403, "missing_right", "GET", f"/v1/actors/{pids[0]}")
    for pid in pids:
        # Every answer is searched for secrets by whoever asks; see tests.homeserver.served.
        await alpha.api.get(f"/v1/actors/{pid}", headers=operator(alpha))


async def test_a_part_that_an_operator_ends_is_started_again(alpha: Home) -> None:
    async def link() -> int:
        rows = (await alpha.api.get("/v1/actors"))["actors"]
        return next((row["pid"] for row in rows if row["label"].startswith("service 'link'")), 0)

    before = await link()
    assert (await alpha.api.do("DELETE", f"/v1/actors/{before}", headers=operator(alpha)))["pid"] == before
    while await link() in (before, 0):  # noqa: ASYNC110 — the API says it, and calls nobody
        await trio.sleep(0.01)
    assert alpha.node.link.address is not None
