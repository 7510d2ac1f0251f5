"""A life that is encoded piece by piece is the same, byte by byte, as its snapshot."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.encoder import LifeEncoder
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.mail.items import MailBudget
from batonpass.simserver.world.step import Carried
from tests.budget import examples

MAPS = st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.floats(allow_nan=False)), max_size=3)
CURSORS = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=6),
    st.tuples(st.integers(0, 300), st.integers(0, 300), st.binary(min_size=16, max_size=16)).map(list),
    max_size=3,
)
PENDING = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 300), st.binary(max_size=4)).map(list), max_size=3)
CARRIED = st.builds(
    Carried, st.dictionaries(st.text("ab", min_size=1), st.integers(0, 99), max_size=3), st.binary(), st.integers(0, 99)
)


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(st.text(max_size=4), st.integers(0, 2**40), MAPS, CURSORS, PENDING, st.booleans()), max_size=3),
    CARRIED,
    st.builds(Ownership, st.text(max_size=4), st.integers(0, 99)),
)
def test_a_life_is_encoded_as_its_snapshot_whatever_has_changed_since_the_last_time(
    steps: list[tuple[str, int, dict[Any, Any], dict[str, Any], list[Any], bool]], carried: Carried, owner: Ownership
) -> None:
    encoder, mail = LifeEncoder(), EntityMail(MailBudget())
    for changes, (_, tick, world, cursors, pending, forgotten) in enumerate(steps):
        inbox = EntityInbox.from_data({"cursors": cursors, "pending": pending, "has_forgotten": forgotten})
        inbox.changes = changes
        kind = steps[0][0]
        broken = "poison" if len(world) % 2 else ""
        if world:
            mail.send(1, tick, [("alpha.b", b"hello")])
        life = SimpleNamespace(
            kind=kind, tick=tick, world=world, inbox=inbox, ownership=owner, schema=2, carried=carried,
            quarantine=SimpleNamespace(wherever=broken, released_epoch=len(world)), mail=mail,
        )  # fmt: skip
        snapshot = EntitySnapshot(
            kind, tick, world, inbox.to_data(), owner, 2, carried, broken, released_epoch=len(world),
            messages=mail.to_data(),
        )  # fmt: skip
        assert encoder.encode(cast(Any, life)) == snapshot.encode()
        assert encoder.encode(cast(Any, life)) == snapshot.encode()
