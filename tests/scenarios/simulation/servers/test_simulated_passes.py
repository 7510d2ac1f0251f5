"""Direct passes in simulated clusters, of which the log learns late, in another order, or not at all."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import LeaseRow, Phase
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import HandoffReply
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.durability.retained_states import HANDED_OVER_NS
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.transfer.source import reports
from tests.mutants.servers.table import MUTANTS
from tests.scenarios.simulation.servers.test_simulated_lapses import (
    EAGER,
    ENTITY,
    OUTSIDE,
    SOURCE,
    TARGET,
    passing,
    until,
)


def _delegated(name: str, *group: str, parts: ServersParts | None = None) -> ServersCluster:
    """A cluster in which an entity may be passed directly."""
    cluster = ServersCluster(MIXES["calm"], Random(name), parts)
    passing(cluster, 1.0)
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.delegate, ENTITY, group)
    until(cluster, lambda: (held := cluster.servers[SOURCE].holding(ENTITY)) is not None and bool(held.group))
    return cluster


def _settle(cluster: ServersCluster) -> None:
    for player in cluster.players:
        player.resting = True
    until(cluster, lambda: cluster.schedule.happened % 256 == 0 and not cluster.unsettled())
    assert (cluster.left_out(ENTITY), cluster.judge.violations) == ("", [])


def test_what_a_pass_allowed_is_not_allowed_when_the_same_transfer_brings_the_entity_again() -> None:
    """The log never heard of the pass, had the entity gone on with elsewhere, and the transfer was still to be made."""
    cluster = _delegated("twice", SOURCE, TARGET)
    source, target, home = cluster.servers[SOURCE], cluster.servers[TARGET], cluster.homes["alpha.h1"]
    direct = {**EAGER, "direct": True}
    source.node.departures.reports.tell = lambda message: None  # type: ignore[method-assign]
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, direct)
    until(cluster, lambda: (held := target.holding(ENTITY)) is not None and held.fence == Fence(1, 1))
    for name in ("alpha.h1", "alpha.h2"):
        cluster.mail.cut(TARGET, name)
        cluster.mail.cut(name, TARGET)
    until(cluster, lambda: not target.has_lease)
    passing(cluster, 5.0)
    cluster.mail.heal()
    until(cluster, lambda: target.has_lease and target.holding(ENTITY) is None)
    cluster.crash(SOURCE)
    cluster.gone[SOURCE] = None
    until(cluster, lambda: any(server.holding(ENTITY) is not None for server in cluster.servers.values()))
    home.process.start_soon(home.move, "transfer-2", ENTITY, OUTSIDE, EAGER)
    until(cluster, lambda: cluster.servers[OUTSIDE].holding(ENTITY) is not None)
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, direct)
    until(cluster, lambda: target.holding(ENTITY) is not None)
    held = target.holding(ENTITY)
    assert held is not None
    assert (held.chain, held.group) == ((), ()), "leave of an earlier stay"
    _settle(cluster)


def test_failures_row_22_a_pass_of_which_only_its_source_knows_is_told_as_soon_as_home_hears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long that takes. By the log the entity is with its source, which is alive and does not simulate it; its
    target died before it told of its chain or sent copies, and no player asks. So the source has its last state.
    """
    monkeypatch.setattr(reports, "TRIES", 3)
    cluster = _delegated("untold", SOURCE, TARGET, parts=MUTANTS["never-asks"].parts)
    source, target, home = cluster.servers[SOURCE], cluster.servers[TARGET], cluster.homes["alpha.h1"]
    ask_each = source.node.home.ask_each

    async def unheard(letters: Sequence[Letter]) -> list[Any]:
        return [HomeUnreachable("it is lost on its way")] * len(letters)

    source.node.home.ask_each = unheard  # type: ignore[method-assign]
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, {**EAGER, "direct": True})
    until(cluster, lambda: target.holding(ENTITY) is not None and not len(source.node.departures))
    cluster.crash(TARGET)
    target.start()
    passing(cluster, HANDED_OVER_NS / 1e9 + 2.0)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.authority, record.fence) == (SOURCE, Fence(1))
    source.node.home.ask_each = ask_each  # type: ignore[method-assign]
    until(cluster, lambda: any(server.holding(ENTITY) is not None for server in cluster.servers.values()))
    _settle(cluster)


@pytest.mark.parametrize("mode", ["eager", "staged"])
def test_a_pass_by_a_chain_that_breaks_is_refused_by_the_log_and_the_entity_goes_on(mode: str) -> None:
    """However it came about that it was signed. The target reads the same chain, and does not begin.

    The first answer is lost: a repetition is told the same.
    """
    cluster = _delegated(f"broken {mode}", SOURCE, TARGET)
    source, home = cluster.servers[SOURCE], cluster.homes["alpha.h1"]
    held = source.holding(ENTITY)
    assert held is not None
    held.group = (*held.group, OUTSIDE)
    departures, lost = source.node.departures, list[HandoffReply]()
    replied = departures.replied

    def loses_the_first(opened: OpenedMessage, reply: HandoffReply) -> None:
        if lost:
            replied(opened, reply)
        lost.append(reply)

    departures.replied = loses_the_first  # type: ignore[method-assign]
    home.process.start_soon(home.move, "transfer-1", ENTITY, OUTSIDE, {**EAGER, "direct": True, "mode": mode})
    until(cluster, lambda: (way := home.store.transfer("transfer-1")) is not None and way.phase is Phase.REFUSED)
    transfer = home.store.transfer("transfer-1")
    assert transfer is not None
    assert transfer.reason == Reason.NO_DELEGATION
    until(cluster, lambda: not held.life.frozen)
    assert (held.fence, source.holding(ENTITY), len(lost)) == (Fence(2), held, 2)
    assert cluster.servers[OUTSIDE].holding(ENTITY) is None
    home.process.start_soon(home.move, "transfer-2", ENTITY, OUTSIDE, {**EAGER, "direct": True})
    until(cluster, lambda: cluster.servers[OUTSIDE].holding(ENTITY) is not None)
    _settle(cluster)


@pytest.mark.parametrize("dies", [False, True])
def test_a_pass_of_which_the_log_learns_while_a_server_is_swept_is_not_left_with_its_dead_incarnation(
    dies: bool,
) -> None:
    """The log knows that there is something to sweep, and is told a moment later that there was nothing.

    Who told it so looks no second time, as it may be dead by then.
    """
    cluster = ServersCluster(MIXES["calm"], Random("swept"))
    log, source, target = cluster.logs["alpha"], cluster.servers[SOURCE], cluster.servers[TARGET]
    (home,) = [one for one in cluster.homes_of("alpha") if one.parts.leases.granter.office]
    log.run("entity.delegate", {"entity": ENTITY, "group": [SOURCE, TARGET]})
    sweep, passed = home.parts.leases._sweep, {"entity": ENTITY, "epoch": 1, "sub": 1, "kind": "pass", "incarnation": 1}
    passed |= {"transfer_id": "transfer-1", "source": SOURCE, "target": TARGET, "tick": 1, "state_hash": "0" * 64}

    async def swept(lease: LeaseRow) -> bool:
        is_all = await sweep(lease)
        record = cluster.record(ENTITY)
        if lease.server == TARGET and record is not None and not record.sub and record.epoch == 1:
            source.node.holdings.drop(ENTITY)
            log.run("transfer.passed", {"entity": ENTITY, "passes": [passed]})
        return is_all

    submit = home.store.submit

    async def submitted(procedure: str, **args: Any) -> Any:
        answer = await submit(procedure, **args)
        if dies and procedure == "lease.swept" and args["server"] == TARGET:
            log.cut_off(home.name)
            cluster.schedule.after(0.0, home.process.end)
        return answer

    home.parts.leases._sweep = swept
    home.store.submit = submitted  # type: ignore[method-assign]
    target.crash()
    target.start()
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.epoch > 1)
