"""Orders that come again: nothing moves twice for one, and what the log has not decided is begun whenever it can be."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.trust.certificates import DelegationGrant, PassCertificate
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Activated, DirectHandoff, HandoffReply, HandoffRequest
from batonpass.crypto import jose
from batonpass.simserver.transfer.source import order_history as begun
from batonpass.simserver.transfer.source.order_history import SeenOrders, was_passed
from tests.simserver.stage import ADA, BALL
from tests.simserver.transfer.source import test_direct_departures as direct
from tests.simserver.transfer.source.test_departures import HERE, IDENTITY, PLAN, THERE, TRANSFER, Scene

DIRECT = replace(direct.PLAN, ordered=True, undecided_at=Fence(1))


@pytest.fixture
def scene(system: System, autojump_clock: MockClock) -> Scene:
    return Scene(system)


def chain_to(fence: Fence, *transfers: str) -> tuple[str, ...]:
    """A grant, and a pass for each of these transfers, the last of which leads to this fence."""
    first, parent = fence.sub - len(transfers), "0" * 64
    grant = DelegationGrant(entity=BALL, epoch=fence.epoch, sub=first, holder=HERE, group=(HERE, THERE))
    passes = [
        PassCertificate(
            entity=BALL, epoch=fence.epoch, sub=first + place, transfer_id=name, source=HERE, target=THERE, tick=1,
            state_hash=parent, parent=parent,
        )
        for place, name in enumerate(transfers, 1)
    ]  # fmt: skip
    claims = [certificate.to_claims() for certificate in (grant, *passes)]
    return tuple(jose.sign(said, sender=IDENTITY, sender_id=HERE) for said in claims)


def comes_back(scene: Scene, fence: Fence, *transfers: str) -> None:
    """As whatever brings an entity does; it is delegated under its new fence, by a chain of these transfers."""
    scene.departures.superseded(BALL, fence)
    scene.holdings.drop(BALL)
    holding = scene.holdings.spawn(BALL, "ball", {}, fence, Ownership(ADA, 1))
    holding.delegated(chain_to(fence, *transfers), (HERE, THERE), fence)


def passes(scene: Scene) -> set[Fence]:
    return {message.fence for _, message in scene.mail.sent if isinstance(message, DirectHandoff)}


async def passed(scene: Scene, has_heard: bool) -> None:
    """It has left directly, and maybe its target has said that it simulates."""
    scene.departures.begin(DIRECT)
    await direct.turn()
    if has_heard:
        message = Activated(transfer_id=DIRECT.transfer_id, entity=BALL, epoch=1, sub=1)
        scene.departures.activated(OpenedMessage(message, THERE, Trace(DIRECT.transfer_id)), message)


def answered(scene: Scene, outcome: str, epoch: int, reason: str = "", authority: str = THERE) -> None:
    reply = HandoffReply.model_validate(
        {
            "transfer_id": TRANSFER,
            "outcome": outcome,
            "reason": reason,
            "authority": authority,
            "epoch": epoch,
            "sub": 0,
        }
    )
    scene.departures.replied(OpenedMessage(reply, "alpha.h1", Trace(TRANSFER)), reply)


@pytest.mark.parametrize("has_heard", [True, False])
async def test_failures_row_2_a_direct_order_that_comes_again_after_the_entity_came_back_moves_nothing_again(
    scene: Scene, has_heard: bool
) -> None:
    scene.mail.is_open = False
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard)
        comes_back(scene, Fence(1, 2))
        scene.departures.begin(DIRECT)
        await direct.turn()
    assert (passes(scene), scene.departures.is_leaving(BALL)) == ({Fence(1, 1)}, False)
    assert scene.counts["order_repeated"] == 1


@pytest.mark.parametrize("has_heard", [True, False])
async def test_what_was_passed_and_given_back_by_the_log_goes_through_the_log_when_it_is_ordered_again(
    scene: Scene, has_heard: bool
) -> None:
    """The log may have learned of the pass before it raised the epoch, or not: it says what comes of the transfer."""
    scene.mail.is_open = False
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard)
        comes_back(scene, Fence(2))
        scene.mail.is_open = True
        scene.departures.begin(DIRECT)
        await direct.turn()
        asked = [message for message in scene.mail.asked if isinstance(message, HandoffRequest)]
    assert [(request.transfer_id, request.fence) for request in asked] == [(DIRECT.transfer_id, Fence(2))]
    assert (passes(scene), scene.departures.is_leaving(BALL)) == ({Fence(1, 1)}, True)


async def test_of_which_home_has_taken_the_report_nothing_is_begun_again_in_any_epoch(scene: Scene) -> None:
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard=True)
        await trio.sleep(1)
    comes_back(scene, Fence(5))
    scene.departures.begin(DIRECT)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (0, 1)


@pytest.mark.parametrize(("outcome", "reason"), [("committed", ""), ("refused", "denied")])
async def test_what_the_log_has_decided_is_not_begun_again_in_any_epoch(
    scene: Scene, outcome: str, reason: str
) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    answered(scene, outcome, 2, reason, THERE if outcome == "committed" else HERE)
    comes_back(scene, Fence(5))
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (0, 1)


@pytest.mark.parametrize(
    ("authority", "epoch", "back"), [(THERE, 2, Fence(2, 1)), (HERE, 2, Fence(2)), (THERE, 1, Fence(1, 2))]
)
async def test_who_asked_under_an_old_fence_begins_again_what_the_log_has_not_decided(
    scene: Scene, authority: str, epoch: int, back: Fence
) -> None:
    """It was taken from here, and maybe given back already, before the request was read."""
    scene.spawn()
    scene.departures.begin(PLAN)
    answered(scene, "refused", epoch, "not_holder", authority)
    assert len(scene.departures) == 0
    comes_back(scene, back)
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (1, 0)


def test_so_many_are_remembered_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun, "MAX_BEGUN", 2)
    known = SeenOrders()
    for transfer_id in ("one", "two", "one", "three"):
        known.begins(transfer_id, 0)
    known.decided("two")
    assert dict(known.items()).keys() == {"one", "three"}


def test_what_is_decided_stays_so_when_the_entity_is_taken_away() -> None:
    known = SeenOrders()
    known.begins("one", 1)
    known.decided("one")
    known.taken("one")
    assert known.is_repetition("one", 7)
    known.taken("another")
    assert "another" not in known


def test_in_the_epoch_in_which_an_entity_was_taken_and_came_back_its_transfer_is_begun_again() -> None:
    known = SeenOrders()
    known.begins("one", 1)
    assert known.is_repetition("one", 1)
    known.taken("one")
    assert "one" in known
    assert not known.is_repetition("one", 1)


# --- what nobody here remembers ---------------------------------------------------------------------------------------

ONE, OTHER = "transfer-one", "transfer-other"


@pytest.mark.parametrize("forgets", ["restarted", "evicted"])
@pytest.mark.parametrize(
    ("chain", "said_at", "becomes"),
    [
        # The chain that brought it back tells of the pass.
        ((DIRECT.transfer_id, OTHER), Fence(1), "repeated"),
        ((DIRECT.transfer_id, OTHER), Fence(0), "repeated"),
        # The log has learned of the pass, and home has renewed the grant since the order was given.
        ((OTHER,), Fence(1), "through the log"),
        ((), Fence(1), "through the log"),
        # Nobody has said how far the log was.
        ((), Fence(0), "through the log"),
        # The log was there when it had no result yet, or has told of all that came since.
        ((), Fence(1, 2), "direct"),
        ((OTHER,), Fence(1, 1), "direct"),
        ((OTHER, ONE), Fence(1), "direct"),
    ],
)
async def test_failures_row_2_who_has_forgotten_goes_by_what_order_and_chain_prove(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, forgets: str, chain: tuple[str, ...], said_at: Fence,
    becomes: str,
) -> None:  # fmt: skip
    """The transfer was passed once, by an earlier life of this server, or so long ago that it is forgotten."""
    if forgets == "evicted":
        monkeypatch.setattr(scene.departures._begun._epochs, "max_entries", 1)
        scene.departures._begun.begins(DIRECT.transfer_id, 1)
        scene.departures._begun.begins(OTHER, 1)
    await trio.sleep(1)
    comes_back(scene, Fence(1, 2), *chain)
    async with scene.served():
        scene.departures.begin(replace(DIRECT, undecided_at=said_at))
        await direct.turn()
        asked = [message.fence for message in scene.mail.asked if isinstance(message, HandoffRequest)]
    assert passes(scene) == ({Fence(1, 3)} if becomes == "direct" else set())
    assert asked == ([Fence(1, 2)] if becomes == "through the log" else [])
    assert scene.counts["order_repeated"] == (1 if becomes == "repeated" else 0)
    assert scene.departures.is_leaving(BALL) == (becomes != "repeated")


async def test_what_is_proved_when_it_is_ordered_must_be_so_when_it_leaves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits the entity is passed on, comes back, and its grant is renewed."""
    scene.mail.is_open = False
    await trio.sleep(1)
    comes_back(scene, Fence(1))
    waiting: list[Callable[[str], None]] = []
    monkeypatch.setattr(scene.departures._admission, "ask", lambda _to, _need, decided, **_: waiting.append(decided))
    async with scene.served():
        scene.departures.begin(DIRECT)
        comes_back(scene, Fence(1, 2))
        (decided,) = waiting
        scene.mail.is_open = True
        decided("")
        await direct.turn()
        asked = [message.fence for message in scene.mail.asked if isinstance(message, HandoffRequest)]
    assert (passes(scene), asked) == (set(), [Fence(1, 2)])


async def test_what_is_thought_of_here_goes_directly_whatever_nobody_has_said(scene: Scene) -> None:
    scene.mail.is_open = False
    await trio.sleep(1)
    comes_back(scene, Fence(1, 2))
    async with scene.served():
        scene.departures.begin(direct.PLAN)
        await direct.turn()
    assert passes(scene) == {Fence(1, 3)}


def test_the_log_of_another_epoch_proves_nothing() -> None:
    chain = chain_to(Fence(2, 3), OTHER)
    assert was_passed(ONE, Fence(1, 7), chain, Fence(2, 3)) is None
    assert was_passed(ONE, Fence(3), chain, Fence(2, 3)) is None
    assert was_passed(ONE, Fence(2, 4), chain, Fence(2, 3)) is None, "what is here is of the past"
    assert was_passed(ONE, Fence(2, 3), (), Fence(2, 3)) is False
    assert was_passed(ONE, Fence(2, 2), (), Fence(2, 3)) is None, "it is not delegated"


@given(data=st.data())
def test_whatever_is_forgotten_nothing_is_passed_twice_for_a_transfer(data: st.DataObject) -> None:
    """A history of passes of one epoch, of which the log and the chain know some of the first, each in turn."""
    history = data.draw(st.lists(st.sampled_from(("passed-a1", "passed-b2", "passed-c3")), unique=True, max_size=3))
    history += data.draw(st.lists(st.integers(0, 9).map(lambda n: f"passed-other{n}"), max_size=4))
    history = data.draw(st.permutations(history))
    transfer, fence = data.draw(st.sampled_from(("passed-a1", "passed-b2", "passed-c3"))), Fence(1, len(history))
    was = transfer in history
    # The log has no result of it where it stands, so its pass comes after that.
    learned = data.draw(st.integers(0, history.index(transfer) if was else len(history)))
    granted = data.draw(st.integers(0, len(history)))
    answer = was_passed(transfer, Fence(1, learned), chain_to(fence, *history[granted:]), fence)
    assert answer in (was, None)
    if granted <= learned:
        assert answer is was, "then it is certain"
