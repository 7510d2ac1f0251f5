"""What servers have that a log gave to them which was taken back: what becomes of it, with homeservers as they are."""

from functools import partial
from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import HeldInquiry, HeldItem, HeldWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.homeserver.transfer.ownership_check import OwnershipCheck
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.entity.snapshot import state_hash
from batonpass.simserver.server.dispatch import SimserverNode as SimNode
from batonpass.simserver.transfer.target.staged_states import StagedState
from batonpass.tree.raft.submissions import NoQuorum
from tests.homeserver.failover.test_foreign_custody import homes, patiently
from tests.homeserver.failover.test_log_witness import LOST, position
from tests.homeserver.served import DEADLINE_S, Home, until

__all__ = ["homes"]

GHOST = "alpha.ghost"
HANDED_ON = 99


def haunted(node: SimNode, entity: str = GHOST, fence: Fence = Fence(1)) -> None:  # noqa: B008 — immutable
    """It simulates something that another log gave to it, and has written it down; and has handed it on."""
    node.departures.handed_on.note(entity, HANDED_ON)
    node.holdings.spawn(entity, "ball", {}, fence, Ownership("alpha.ada", 1))
    node.ledger.checkpoint(entity, fence, 7, b"state")


def staged(entity: str, source: str, epoch: int) -> StagedState:
    return StagedState("transfer-9", entity, source, epoch, 0, "ball", 10**6, state_hash(b"state"), b"state")


async def asked_until(node: SimNode, counted: str) -> None:
    """Its home, or the other one, may not be there at once."""
    with trio.fail_after(DEADLINE_S):
        while not node.counts[counted]:
            await node.foreign_entities.ask_all()


def going_on(home: Home) -> Fence:
    """The fence of what was taken over first after this home had heard of another history of its log."""
    lowest = Fence(lowest_epoch(home.node.store.tree))
    assert lowest.begins_block
    return lowest.raised()


async def lives(node: SimNode, entity: str) -> None:
    await until(lambda: node.holdings.get(entity) is not None)


def given(home: Home) -> Fence:
    """The fence under which this home has given the ball to somebody."""
    record = home.node.store.entity("alpha.ball")
    assert record is not None
    return record.fence


async def goes_abroad(home: Home, target: str) -> None:
    """The ball does. A busy machine may let the other home be silent so long that this is refused, and asked again."""
    refused: list[dict[str, Any]] = []
    while len(refused) < 5:
        transfer_id = f"transfer-{len(refused)}"
        wanted = {"to": target, "transfer_id": transfer_id}
        await patiently(partial(home.api.do, "POST", "/v1/entities/alpha.ball/transfers", wanted))
        ended = await home.finished(transfer_id)
        if ended["result"] == "done":
            return
        refused.append(ended)
    raise AssertionError(refused)


async def is_a_ghost_no_more(node: SimNode) -> None:
    """Neither in memory nor on disk: nobody is shown a copy of it."""
    assert node.holdings.get(GHOST) is None
    assert node.holdings.lived(GHOST) is None
    assert node.replication.table.get(GHOST) is None
    assert not node.departures.handed_on.has(GHOST, HANDED_ON)
    await node.ledger.flush()
    assert node.ledger.checkpoint_of(GHOST) is None
    assert GHOST not in {entity for entity, _ in node.ledger.all_lived()}


async def test_failures_row_42_who_followed_a_log_that_was_taken_back_keeps_what_the_newest_one_gave_it_alone(
    homes: tuple[Home, Home],
) -> None:
    alpha, _ = homes
    node = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    for entity in ("alpha.ball", "alpha.taken"):
        await alpha.entity(entity, ada, "alpha.s1")
        await lives(node, entity)
    haunted(node)
    # By the other log it has been given this one again.
    node.holdings.drop("alpha.taken")
    haunted(node, "alpha.taken", Fence(3))
    await node.stages.put(staged("alpha.ball", "alpha.s7", 1))
    incarnation, tick = node.lease.incarnation, node.holdings.get("alpha.ball").life.tick  # type: ignore[union-attr]
    # The first part of the next renewal of the lease is heard as that of a log which went back.
    node.log_watermark.doubtful = position(alpha, LOST)
    await until(lambda: node.counts["came_back_astray"])
    await until(lambda: node.lease.is_alive and node.lease.incarnation > incarnation)
    assert (node.log_watermark.doubtful, node.lease.log_went_back) == ("", "")
    assert not alpha.node.leases.went_back
    await is_a_ghost_no_more(node)
    assert node.stages.of("alpha.ball", Fence(9)) is None, "whoever froze it has never had this fence"
    await lives(node, "alpha.ball")
    holding = node.holdings.get("alpha.ball")
    assert holding is not None
    # As after any restart gone on with from what this server had of its last stay, in a block of epochs of its own.
    assert holding.fence == going_on(alpha)
    assert holding.life.tick >= tick
    # Nobody had anything of what it was before, so it is said to be lost, and not gone on with from the other history.
    await until(lambda: alpha.node.store.entity("alpha.taken").standing == "lost")  # type: ignore[union-attr]
    assert node.holdings.get("alpha.taken") is None


async def test_failures_row_42_where_a_loss_is_accepted_servers_go_on_with_what_they_have_by_the_log_that_is_left(
    homes: tuple[Home, Home],
) -> None:
    """They need not be emptied by hand: what they have of another history is given up, and the rest is not."""
    alpha, _ = homes
    node = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await lives(node, "alpha.ball")
    haunted(node)
    node.log_watermark.position = position(alpha, LOST)
    await until(lambda: node.lease.log_went_back)
    assert alpha.node.leases.went_back
    holding = node.holdings.get("alpha.ball")
    assert holding is not None
    tick = holding.life.tick
    await alpha.node.store.submit("log.accept")
    await until(lambda: node.counts["came_back_astray"])
    await until(lambda: (one := node.holdings.get("alpha.ball")) is not None and one.fence == going_on(alpha))
    assert node.holdings.get("alpha.ball").life.tick >= tick  # type: ignore[union-attr]
    await is_a_ghost_no_more(node)


async def test_failures_row_42_who_was_granted_nothing_since_the_copy_was_made_keeps_all(
    homes: tuple[Home, Home],
) -> None:
    alpha, _ = homes
    node = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await lives(node, "alpha.ball")
    haunted(node)
    await until(lambda: node.log_watermark.position)
    incarnation, node.log_watermark.doubtful = node.lease.incarnation, node.log_watermark.position
    await until(lambda: not node.log_watermark.doubtful)
    assert lowest_epoch(alpha.node.store.tree) == 0, "there was no other history"
    await until(lambda: node.lease.is_alive and not node.lease.log_went_back)
    assert node.lease.incarnation == incarnation
    assert node.holdings.get(GHOST) is not None
    assert node.counts["came_back_astray"] == 0


async def test_failures_row_42_what_another_instances_log_took_back_does_not_go_on_here_for_good(
    homes: tuple[Home, Home],
) -> None:
    alpha, beta = homes
    await alpha.simserver("alpha.s1")
    far = await beta.simserver("beta.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await goes_abroad(alpha, "beta.s1")
    await lives(far, "alpha.ball")
    haunted(far)
    await far.foreign_entities.ask_all()
    assert far.holdings.get(GHOST) is not None, "once is nothing"
    await asked_until(far, "disowned")
    await is_a_ghost_no_more(far)
    assert far.holdings.get("alpha.ball") is not None
    # Nor is its owner's own home asked what is with its own servers.
    haunted(far, "beta.ghost")
    for _ in range(3):
        await far.foreign_entities.ask_all()
    assert far.holdings.get("beta.ghost") is not None


async def test_failures_row_42_a_log_that_was_never_where_the_server_heard_that_it_was_takes_nothing_from_it(
    homes: tuple[Home, Home],
) -> None:
    """Not even what it has never given: it is the server that proves that it went back."""
    alpha, beta = homes
    far = await beta.simserver("beta.s1")
    haunted(far)
    token = position(alpha, LOST)
    far.lease.shown_abroad("alpha.h1", token)
    assert far.log_watermark.words_of("alpha") == [token]
    assert far.log_watermark.words_of("beta") == []
    await until(lambda: alpha.node.leases.went_back)
    for _ in range(3):
        await far.foreign_entities.ask_all()
    assert far.holdings.get(GHOST) is not None
    await alpha.node.store.submit("log.accept")
    await until(lambda: not alpha.node.leases.went_back)
    await until(lambda: alpha.node.leases.granter.office > 0)
    await asked_until(far, "disowned")
    await is_a_ghost_no_more(far)


async def who_has_it_abroad(homes: tuple[Home, Home]) -> tuple[Home, SimNode, SimNode]:
    """The log says that the first of two servers abroad has the ball; the other one has it by another history."""
    alpha, beta = homes
    await alpha.simserver("alpha.s1")
    nodes = [await beta.simserver(name) for name in ("beta.s1", "beta.s2")]
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await goes_abroad(alpha, "beta.s1")
    await lives(nodes[0], "alpha.ball")
    haunted(nodes[1], "alpha.ball", Fence(given(alpha).epoch + 4))
    return alpha, nodes[0], nodes[1]


async def test_failures_row_42_who_has_it_by_the_log_that_is_left_goes_on_whatever_another_one_gave(
    homes: tuple[Home, Home],
) -> None:
    alpha, first, second = await who_has_it_abroad(homes)
    tick = first.holdings.get("alpha.ball").life.tick  # type: ignore[union-attr]
    await alpha.node.store.submit("log.parted", office=1)
    await until(lambda: (one := first.holdings.get("alpha.ball")) is not None and one.fence == going_on(alpha))
    assert first.holdings.get("alpha.ball").life.tick >= tick  # type: ignore[union-attr]
    assert second.holdings.get("alpha.ball") is None


@pytest.mark.parametrize("stays", [1, 40])
async def test_failures_row_42_what_was_handed_on_by_the_lost_log_goes_on_with_whoever_has_it(
    homes: tuple[Home, Home], stays: int
) -> None:
    """However often it came back and was handed on again."""
    alpha, first, second = await who_has_it_abroad(homes)
    first.holdings.drop("alpha.ball")
    second.holdings.drop("alpha.ball")
    haunted(second, "alpha.ball", Fence(given(alpha).epoch + 4 * stays))
    for stay in range(stays):
        first.departures.handed_on.note("alpha.ball", given(alpha).epoch + 4 * stay)
    await alpha.node.store.submit("log.parted", office=1)
    await until(lambda: (one := second.holdings.get("alpha.ball")) is not None and one.fence == going_on(alpha))
    assert first.holdings.get("alpha.ball") is None


class Nobody:
    """Stands for a store and positions that must not be asked."""

    async def missing_of(self, _words: Any) -> None:
        raise AssertionError("asked")


async def test_nobody_asks_about_several_instances_at_once() -> None:
    nobody: Any = Nobody()
    held = OwnershipCheck(nobody, nobody, nobody, "alpha", nobody)
    items = [HeldItem(entity=entity, epoch=1, sub=0) for entity in ("alpha.ball", "beta.ball")]

    def opened(*about: HeldItem) -> OpenedMessage:
        message = HeldInquiry(number=1, server="beta.s1", items=list(about))
        return OpenedMessage(message, "beta.s1", Trace("held-00000001"))

    with pytest.raises(MessageError, match="alpha, beta at once"):
        await held.answer(opened(*items))
    with pytest.raises(MessageError, match="no question"):
        await held.answer(OpenedMessage(HeldWord(number=1, kept=[]), "beta.s1", Trace("held-00000001")))


async def test_while_it_is_not_known_what_the_log_says_nothing_is_given_up(homes: tuple[Home, Home]) -> None:
    alpha, beta = homes
    far = await beta.simserver("beta.s1")
    haunted(far)

    async def unknown() -> None:
        raise NoQuorum("nobody knows")

    known, alpha.node.store.confirmed = alpha.node.store.confirmed, unknown  # type: ignore[method-assign]
    for _ in range(3):
        await far.foreign_entities.ask_all()
    assert far.holdings.get(GHOST) is not None
    alpha.node.store.confirmed = known  # type: ignore[method-assign]
    await asked_until(far, "disowned")
    await is_a_ghost_no_more(far)


async def have_shown_a_lost_log(alpha: Home, *nodes: SimNode) -> None:
    """Each has followed a log that is lost, and its home has heard so.

    A renewal that is under way while a position is set brings the home's own, so it is set until that is heard.
    """

    def shows(node: SimNode) -> bool:
        node.log_watermark.position = position(alpha, LOST)
        return bool(node.lease.log_went_back)

    await until(lambda: all(shows(node) for node in nodes))


async def lost_with_the_log(alpha: Home, *, moved_before: bool) -> tuple[SimNode, SimNode]:
    """The ball went from alpha.s1 to alpha.s2 by a log that is lost; by the one that is left it is with alpha.s1."""
    first, second = [await alpha.simserver(name) for name in ("alpha.s1", "alpha.s2")]
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await lives(first, "alpha.ball")
    fence = given(alpha)
    first.holdings.leave("alpha.ball", "alpha.s2", Fence(fence.epoch + 1))
    if not moved_before:
        first.departures.handed_on.note("alpha.ball", fence.epoch, "alpha.s2")
    await first.ledger.flush()
    haunted(second, "alpha.ball", Fence(fence.epoch + 1))
    second.departures.handed_on.forget("alpha.ball")
    haunted(second)
    return first, second


@pytest.mark.parametrize("moved_before", [False, True], ids=["since its start", "before its start"])
async def test_failures_row_42_where_a_loss_is_accepted_what_has_moved_goes_on_where_it_lives(
    homes: tuple[Home, Home], moved_before: bool
) -> None:
    """The server that has it by the log that is left says that it handed it on, also after a restart."""
    alpha, _ = homes
    first, second = await lost_with_the_log(alpha, moved_before=moved_before)
    tick = second.holdings.get("alpha.ball").life.tick  # type: ignore[union-attr]
    await have_shown_a_lost_log(alpha, first, second)
    await alpha.node.store.submit("log.accept")
    await until(lambda: (one := second.holdings.get("alpha.ball")) is not None and one.fence == going_on(alpha))
    assert second.holdings.get("alpha.ball").life.tick >= tick  # type: ignore[union-attr]
    assert first.holdings.get("alpha.ball") is None
    # What the log does not know at all is on the disk, for people.
    await is_a_ghost_no_more(second)
    kept = PutAside(second.config.directory / "put_aside").of(GHOST, 0, Fence(2))
    assert kept is not None
    assert kept.fence == Fence(1)


async def test_failures_row_42_where_a_loss_is_accepted_what_went_abroad_since_goes_on_there(
    homes: tuple[Home, Home],
) -> None:
    """The log that is left says that it never left its home: the server that handed it on says to whom."""
    alpha, beta = homes
    first, far = await alpha.simserver("alpha.s1"), await beta.simserver("beta.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball", ada, "alpha.s1")
    await lives(first, "alpha.ball")
    fence = given(alpha)
    first.holdings.leave("alpha.ball", "beta.s1", Fence(fence.epoch + 1))
    haunted(far, "alpha.ball", Fence(fence.epoch + 1))
    far.departures.handed_on.forget("alpha.ball")
    await have_shown_a_lost_log(alpha, first)
    await alpha.node.store.submit("log.accept")
    await until(lambda: (one := far.holdings.get("alpha.ball")) is not None and one.fence == going_on(alpha))
    assert first.holdings.get("alpha.ball") is None


async def test_an_operator_sees_what_would_be_concerned_before_a_loss_is_accepted(homes: tuple[Home, Home]) -> None:
    alpha, _ = homes
    token = {"Authorization": f"Bearer {(alpha.directory / 'operator').read_text()}"}
    _, second = await lost_with_the_log(alpha, moved_before=False)
    async with httpx.AsyncClient(base_url=alpha.api.url, headers=token, verify=trusted_authorities()) as operator:
        alarm = (await operator.get("/v1/cluster/log-alarm")).json()
        assert (alarm["why"], alarm["entities"]) == ("", 1)
        body = {"server": "alpha.s2", "entities": [one.id for one in second.holdings]}
        held = (await operator.post("/v1/cluster/log-alarm/held", json=body)).json()
    assert held == {"here": 0, "elsewhere": 1, "unknown": 1}
    async with httpx.AsyncClient(base_url=alpha.api.url, verify=trusted_authorities()) as anybody:
        assert (await anybody.get("/v1/cluster/log-alarm")).status_code == 401
