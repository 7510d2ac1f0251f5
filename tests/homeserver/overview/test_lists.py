"""Lists in pages: what they have, whatever there is and whatever is asked for."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import given, settings

from batonpass.authority.model.records import EntityRecord, Phase
from batonpass.authority.model.standing import Standing
from batonpass.homeserver.overview import lists
from batonpass.homeserver.overview.lists import EntityFilter, EntityPage, entity_page, newest_listed
from tests.budget import examples
from tests.homeserver.overview.rows import MemberRows

servers = st.sampled_from(["alpha.s1", "alpha.s2", "beta.s1", ""])
players = st.sampled_from(["alpha.ada", "alpha.s1", ""])
kinds = st.sampled_from(["ball", "alpha.s2", "lost"])
standings = st.sampled_from(list(Standing))
names = st.text("ab-1", min_size=1, max_size=4).map("alpha.{}".format)
rows = st.dictionaries(
    names, st.fixed_dictionaries({"authority": servers, "owner": players, "kind": kinds}), max_size=30
)
filters = st.builds(
    EntityFilter,
    st.text("ab-1", max_size=2),
    st.none() | servers,
    st.none() | players,
    st.none() | kinds,
    st.none() | st.sampled_from(["recovering", "lost"]),
)


def wanted_by(record: EntityRecord, wanted: EntityFilter) -> bool:
    """As it is said to people."""
    pairs: list[tuple[Any, Any]] = [
        (wanted.server, record.authority),
        (wanted.owner, record.owner),
        (wanted.kind, record.kind),
        (wanted.standing, record.standing.value),
    ]
    return wanted.search in record.id and all(asked is None or asked == found for asked, found in pairs)


@given(rows, st.lists(standings, min_size=1, max_size=3), filters, st.integers(1, 7), st.integers(1, 5))
@settings(max_examples=examples(200))
async def test_the_pages_have_each_entity_that_is_wanted_once_and_in_order(
    there: dict[str, dict[str, Any]], stand: list[Standing], wanted: EntityFilter, limit: int, piece: int
) -> None:
    member = MemberRows()
    records = [
        member.entity(name, standing=stand[at % len(stand)], **row) for at, (name, row) in enumerate(there.items())
    ]
    found: list[str] = []
    after: str | None = ""
    with patch.multiple(lists, _PIECE=piece, _PIECE_OF_ROWS=piece):
        while after is not None:
            page: EntityPage = await entity_page(member.node, wanted, limit, after)
            assert page.total == len(records)
            assert len(page.entities) == limit or page.after is None
            found += [one.id for one in page.entities]
            after = page.after
    assert found == sorted(record.id for record in records if wanted_by(record, wanted))


async def test_no_piece_of_the_work_is_long() -> None:
    member = MemberRows()
    for number in range(30):
        member.entity(f"alpha.ball-{number:02}")
    with patch.object(lists, "_PIECE", 4):
        page = await entity_page(member.node, EntityFilter(search="2"), 3, "alpha.ball-1")
    assert [one.id for one in page.entities] == ["alpha.ball-12", "alpha.ball-20", "alpha.ball-21"]
    assert member.turns == 8


async def test_no_more_rows_are_decoded_than_may_come_into_the_page() -> None:
    member = MemberRows()
    for number in range(1000):
        member.entity(f"alpha.ball-{number:03}", kind="ball" if number % 2 else "cube")
    decoded: list[str] = []

    def read(data: dict[str, Any]) -> EntityRecord:
        decoded.append(data["id"])
        return EntityRecord.from_data(data)

    with patch.object(lists, "EntityRecord", SimpleNamespace(from_data=read)):
        page = await entity_page(member.node, EntityFilter(kind="cube"), 10, "")
    assert [one.id for one in page.entities] == [f"alpha.ball-{number:03}" for number in range(0, 20, 2)]
    # One more, by which it is known that there is a next page.
    assert decoded == [f"alpha.ball-{number:03}" for number in range(0, 22, 2)]


def test_the_newest_transfers_come_first() -> None:
    member = MemberRows()
    for number in range(5):
        member.transfer(f"transfer-{number}")
    member.transfer("transfer-0", Phase.DONE)
    shown = newest_listed(member.node, 3)
    assert [one.transfer_id for one in shown] == ["transfer-4", "transfer-3", "transfer-2"]
    assert [one.transfer_id for one in newest_listed(member.node, 100)][-1] == "transfer-0"
    assert newest_listed(member.node, 100)[-1].phase is Phase.DONE
    assert newest_listed(MemberRows().node, 3) == []
