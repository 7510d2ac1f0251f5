"""Owners that change while an entity has been passed directly, and the log still names who had it before."""

from collections.abc import Callable
from random import Random
from typing import Any

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.wire.transfer import OwnerHint
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.simserver.entity.state import Life

ENTITY, SOURCE, TARGET, THIRD = "alpha.e0", "alpha.s1", "alpha.s2", "alpha.s3"
HOMES = ("alpha.h1", "alpha.h2")
SOON_S = 0.5
"""Some messages long, and much less than the seconds after which servers ask by themselves."""


def passing(cluster: ServersCluster, seconds: float) -> None:
    cluster.schedule.run_until(cluster.schedule.now_s + seconds)


def until(cluster: ServersCluster, done: Callable[[], bool]) -> None:
    """Let time pass until it is so, a minute of it at most."""
    assert cluster.schedule.run_until(cluster.schedule.now_s + 60.0, done), "it does not come about"


def life_at(cluster: ServersCluster, server: str) -> Life:
    holding = cluster.servers[server].holding(ENTITY)
    assert holding is not None
    return holding.life


def delegated(name: str) -> ServersCluster:
    """Three servers may pass an entity directly. Nobody gives inputs, by which its authority would learn more."""
    cluster = ServersCluster(MIXES["calm"], Random(name))
    for player in cluster.players:
        player.resting = True
    passing(cluster, 1.0)
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.delegate, ENTITY, (SOURCE, TARGET, THIRD))
    until(cluster, lambda: bool((held := cluster.servers[SOURCE].holding(ENTITY)) and held.group))
    return cluster


def hold_reports(cluster: ServersCluster, server: str) -> Callable[[], None]:
    """Keep what a server would report, until what is returned is called."""
    reports, held = cluster.servers[server].node.departures.reports, list[Any]()
    tell = reports.tell
    reports.tell = held.append  # type: ignore[method-assign, assignment]

    def let_go() -> None:
        for message in held:
            tell(message)

    return let_go


def pass_on(cluster: ServersCluster, source: str, target: str) -> None:
    cluster.servers[source].node.departures.wants_to_go(ENTITY, target)
    until(cluster, lambda: cluster.servers[target].holding(ENTITY) is not None)
    until(cluster, lambda: cluster.servers[source].holding(ENTITY) is None)


def give_away(cluster: ServersCluster) -> Ownership:
    """The log gives the entity to another owner, and home tells whom the log names; who owns it then."""
    home = cluster.homes["alpha.h1"]
    before = cluster.record(ENTITY)
    assert before is not None
    other = next(player.name for player in cluster.players if player.name != before.owner)

    async def give() -> None:
        change = {"entity": ENTITY, "by": before.master, "owner": other}
        await home.parts.notices.tell_owner(
            EntityRecord.from_data(await home.store.submit("entity.change_rights", **change))
        )

    home.process.start_soon(give)
    until(cluster, lambda: (now := cluster.record(ENTITY)) is not None and now.owner == other)
    now = cluster.record(ENTITY)
    assert now is not None
    return Ownership(now.owner, now.owner_rev)


def at_rest(cluster: ServersCluster) -> None:
    until(cluster, lambda: not cluster.unsettled())
    assert cluster.judge.violations == []


def test_failures_row_6_word_that_comes_to_a_former_authority_goes_after_the_entity_wherever_it_went() -> None:
    cluster = delegated("goes after")
    let_go = hold_reports(cluster, SOURCE), hold_reports(cluster, TARGET)
    pass_on(cluster, SOURCE, TARGET)
    pass_on(cluster, TARGET, THIRD)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.authority, record.fence) == (SOURCE, Fence(1)), "the log has heard of no pass"
    owner = give_away(cluster)
    passing(cluster, SOON_S)
    assert life_at(cluster, THIRD).ownership == owner
    assert [cluster.servers[name].counts["owner_sent_after"] for name in (SOURCE, TARGET)] == [1, 1]
    for report in let_go:
        report()
    at_rest(cluster)


def test_failures_row_6_word_that_comes_while_it_is_passed_goes_after_it_when_it_has_left() -> None:
    """The target has begun, with the owner of before, and its answer is on its way."""
    cluster = delegated("frozen")
    hold_reports(cluster, SOURCE)
    cluster.servers[SOURCE].node.departures.wants_to_go(ENTITY, TARGET)
    until(cluster, lambda: life_at(cluster, SOURCE).frozen)
    cluster.mail.cut(TARGET, SOURCE)
    until(cluster, lambda: cluster.servers[TARGET].holding(ENTITY) is not None)
    before = life_at(cluster, TARGET).ownership
    owner = give_away(cluster)
    passing(cluster, 0.1)
    assert (life_at(cluster, SOURCE).frozen, life_at(cluster, TARGET).ownership) == (True, before)
    cluster.mail.heal()
    until(cluster, lambda: cluster.servers[SOURCE].holding(ENTITY) is None)
    passing(cluster, SOON_S)
    assert life_at(cluster, TARGET).ownership == owner


def test_failures_row_6_home_tells_the_new_authority_when_the_log_learns_of_the_pass() -> None:
    """The former authority was dead when it would have been told, and knows nothing of it."""
    cluster = delegated("reported")
    let_go = hold_reports(cluster, SOURCE)
    pass_on(cluster, SOURCE, TARGET)
    for home in HOMES:
        cluster.mail.cut(home, SOURCE)
    owner = give_away(cluster)
    passing(cluster, 0.1)
    assert life_at(cluster, TARGET).ownership != owner
    cluster.mail.heal()
    let_go()
    passing(cluster, SOON_S)
    assert life_at(cluster, TARGET).ownership == owner
    at_rest(cluster)


def test_failures_row_6_who_has_a_pass_made_in_its_name_owns_the_entity_there_as_soon_as_the_log_knows() -> None:
    """It becomes its owner with the report, so that nobody but home could say it."""
    cluster = delegated("in its name")
    home, record = cluster.homes["alpha.h1"], cluster.record(ENTITY)
    assert record is not None
    other = next(player.name for player in cluster.players if player.name != record.owner)
    how = {"direct": True, "transport": "link", "mode": "eager", "requester": other}
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, how)
    until(cluster, lambda: (now := cluster.record(ENTITY)) is not None and now.owner == other)
    passing(cluster, SOON_S)
    assert life_at(cluster, TARGET).ownership.owner == other
    at_rest(cluster)


def test_a_hint_is_believed_by_nobody_and_home_is_asked() -> None:
    """Whoever sends it may be anybody who is a server, and could lock out every owner to come."""
    cluster = delegated("made up")
    before = life_at(cluster, SOURCE).ownership
    asked = cluster.servers[SOURCE].counts
    cluster.mail.send(THIRD, SOURCE, OwnerHint(entity=ENTITY, owner_rev=2**62, epoch=1, sub=0))
    passing(cluster, SOON_S)
    assert life_at(cluster, SOURCE).ownership == before
    assert asked["owner_not_here"] == 0
