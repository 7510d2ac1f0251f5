"""What a server that is cut off from home is not to do: in a cluster in which nothing else happens."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.model.standing import Standing
from batonpass.authority.procedures.transfer_table import DECIDED
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.simserver import CHECKPOINT_INTERVAL_S, COPY_INTERVAL_S
from batonpass.tree.raft.submissions import NoQuorum
from tests.mutants.servers.table import MUTANTS

ENTITY, SOURCE, TARGET, OUTSIDE = "alpha.e0", "alpha.s1", "alpha.s2", "alpha.s3"
COPY_TICKS = round(COPY_INTERVAL_S / 0.05)
EAGER = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}


def passing(cluster: ServersCluster, seconds: float) -> None:
    cluster.schedule.run_until(cluster.schedule.now_s + seconds)


def come_to_rest(cluster: ServersCluster) -> None:
    """Nobody gives inputs any more: one that was given a moment ago would be waited for."""
    for player in cluster.players:
        player.resting = True
    passing(cluster, 12.0)


def until(cluster: ServersCluster, done: Callable[[], bool]) -> None:
    """Let time pass until it is so, a minute of it at most."""
    assert cluster.schedule.run_until(cluster.schedule.now_s + 60.0, done), "it does not come about"


def test_nobody_begins_with_what_arrives_while_its_lease_has_run_out() -> None:
    """Who hears that it has begun drops the state; and nobody would ask a server without a lease for it."""
    cluster = ServersCluster(MIXES["calm"], Random("lapses"))
    source, target, home = cluster.servers[SOURCE], cluster.servers[TARGET], cluster.homes["alpha.h1"]
    for name in ("alpha.h1", "alpha.h2"):
        cluster.mail.cut(TARGET, name)
        cluster.mail.cut(name, TARGET)
    while target.has_lease:
        passing(cluster, 0.01)
    how = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, how)
    moved = cluster.homes["alpha.h1"].store
    while (record := moved.entity(ENTITY)) is None or record.authority != TARGET:
        passing(cluster, 0.01)
        assert target.node.lease.holder.until_ns, "the log gave it to a server whose lease was not over yet"
    passing(cluster, 1.0)
    assert target.holding(ENTITY) is None
    assert source.holding(ENTITY) is not None, "the only state there is"
    assert target.counts["arrival_without_lease"] > 0
    cluster.mail.heal()
    come_to_rest(cluster)
    assert (cluster.unsettled(), cluster.judge.violations) == ("", [])


def test_whoever_stood_still_until_its_lease_was_over_does_not_say_that_it_has_begun() -> None:
    """It had its lease when the leave came: it stands still right after it looked, and then begins with what it has."""
    cluster = ServersCluster(MIXES["calm"], Random("stands still"))
    source, target, home = cluster.servers[SOURCE], cluster.servers[TARGET], cluster.homes["alpha.h1"]
    passing(cluster, 1.0)

    def stand_still(step: str, transfer_id: str) -> None:
        if step == "permitted":
            target.node.lease.holder.until_ns = 0

    target.node.arrivals._reached = stand_still
    how = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, how)
    until(cluster, lambda: target.holding(ENTITY) is not None)
    held = source.holding(ENTITY)
    passing(cluster, 0.05)
    assert held is not None
    assert source.holding(ENTITY) is held, "it hears that another one has begun, and drops what may be the only state"
    assert target.counts["arrival_without_lease"] > 0
    target.node.arrivals._reached = lambda step, transfer_id: None
    come_to_rest(cluster)
    assert (cluster.unsettled(), cluster.judge.violations) == ("", [])


@pytest.mark.parametrize("direct", [True, False])
def test_nothing_leaves_a_server_whose_lease_has_run_out(direct: bool) -> None:
    """It stood still when it was told to pass on what may be taken over now: who came since would believe the pass."""
    cluster = ServersCluster(MIXES["calm"], Random("passes late"))
    source, target, home = cluster.servers[SOURCE], cluster.servers[TARGET], cluster.homes["alpha.h1"]
    if direct:
        home.process.start_soon(home.delegate, ENTITY, (SOURCE, TARGET))
    passing(cluster, 1.0)
    source.node.lease.holder.until_ns = 0
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, {**EAGER, "direct": direct})
    until(cluster, lambda: source.counts["order_without_lease"] > 0)
    held = source.holding(ENTITY)
    assert held is not None
    assert (held.life.frozen, target.holding(ENTITY)) == (False, None)
    until(cluster, lambda: target.holding(ENTITY) is not None)
    until(cluster, lambda: not cluster.unsettled())
    assert cluster.judge.violations == []


def left_alone(cluster: ServersCluster) -> InputStream:
    """The server of an entity is the only one of its instance, the others have older copies; its owner's stream."""
    passing(cluster, 2.0)
    others = [("alpha.s2", "alpha.s3"), ("alpha.s3", "alpha.s2")]
    for name, other in others:
        for away in (SOURCE, other, "alpha.h1", "alpha.h2"):
            cluster.mail.cut(name, away)
            cluster.mail.cut(away, name)
    server = cluster.servers[SOURCE]
    until(cluster, lambda: server.node.lease.peers == (SOURCE,) and server.node.lease.is_alone)
    (owner,) = [player for player in cluster.players if not player.streams[ENTITY].owner]
    stream = owner.streams[ENTITY]
    sent = stream.sent
    until(cluster, lambda: stream.durable > sent)
    return stream


def sole(cluster: ServersCluster) -> bool:
    row = cluster.homes["alpha.h1"].store.lease(SOURCE)
    return row is not None and row.sole


def test_what_the_disk_of_the_last_one_alive_made_durable_is_waited_for() -> None:
    """The others come back with older copies, and it is dead."""
    cluster = ServersCluster(MIXES["calm"], Random("alone"))
    left_alone(cluster)
    cluster.crash(SOURCE)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and not record.authority)
    cluster.mail.heal()
    server = cluster.servers[TARGET]
    until(cluster, lambda: server.node.lease.is_alive and server.node.replication.table.get(ENTITY) is not None)
    passing(cluster, 10.0)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.authority, cluster.judge.violations) == ("", []), "nobody goes on from an older copy"
    for player in cluster.players:
        player.resting = True
    cluster.servers[SOURCE].start()
    until(cluster, lambda: cluster.schedule.happened % 256 == 0 and not cluster.unsettled())
    assert (cluster.left_out(ENTITY), cluster.judge.violations) == ("", [])


def test_when_the_last_one_alive_is_removed_the_older_copies_count() -> None:
    cluster = ServersCluster(MIXES["calm"], Random("alone"))
    left_alone(cluster)
    cluster.crash(SOURCE)
    cluster.mail.heal()
    server, log = cluster.servers[TARGET], cluster.logs["alpha"]
    until(cluster, lambda: server.node.lease.is_alive and server.node.replication.table.get(ENTITY) is not None)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and not record.authority)
    passing(cluster, 5.0)
    assert (record := cluster.record(ENTITY)) is not None
    assert not record.authority
    cluster.judge.died("whoever removed it")
    log.run("server.drain", {"server": SOURCE, "drain_id": "d", "now_s": 1.0})
    log.run("server.remove", {"server": SOURCE, "drain_id": "d"})
    until(cluster, lambda: server.holding(ENTITY) is not None)
    assert not sole(cluster)
    assert cluster.judge.violations == []
    assert cluster.judge.was_set_back(ENTITY), "so nothing that it has told others is owed to them"


@pytest.mark.parametrize("how", ["another policy", "removed"])
def test_who_waits_for_a_server_that_never_returns_goes_on_when_people_say_so(how: str) -> None:
    cluster = ServersCluster(MIXES["calm"], Random("frozen"))
    log, policy = cluster.logs["alpha"], {"entity": ENTITY, "by": cluster.players[0].name}
    log.run("entity.change_rights", policy | {"orphans": "freeze"})
    passing(cluster, 3.0)
    cluster.crash(SOURCE)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and not record.authority)
    passing(cluster, 2.0)
    record = cluster.record(ENTITY)
    assert (record and record.authority) == "", "others have copies, and it waits for its server"
    assert record is not None
    assert record.standing is Standing.RECOVERING, "it is not lost"
    if how == "removed":
        cluster.judge.died("whoever removed it")
        log.run("server.drain", {"server": SOURCE, "drain_id": "d", "now_s": 1.0})
        log.run("server.remove", {"server": SOURCE, "drain_id": "d"})
    else:
        log.run("entity.change_rights", policy | {"orphans": "adopt"})
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority not in ("", SOURCE))
    assert cluster.judge.violations == []


def test_a_loss_that_the_log_was_not_told_for_want_of_a_majority_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the entity would be recovering for ever: the same question to the same servers is not asked twice."""
    cluster = ServersCluster(MIXES["calm"], Random("loss"))
    cluster.crash(SOURCE)  # before anybody has a copy
    refused: list[str] = []
    for store in (home.store for home in cluster.homes.values()):
        submit = store.submit

        async def once(procedure: str, _submit: Any = submit, **args: Any) -> Any:
            if procedure == "recovery.lost" and not refused:
                refused.append(procedure)
                raise NoQuorum("no majority")
            return await _submit(procedure, **args)

        monkeypatch.setattr(store, "submit", once)
    log = cluster.homes["alpha.h1"].store
    until(cluster, lambda: (record := log.entity(ENTITY)) is not None and record.standing is Standing.LOST)
    assert refused


def test_once_others_have_copies_again_nobody_waits_for_a_disk() -> None:
    cluster = ServersCluster(MIXES["calm"], Random("alone"))
    stream = left_alone(cluster)
    assert sole(cluster)
    cluster.mail.heal()
    until(cluster, lambda: not sole(cluster))
    sent = stream.sent
    until(cluster, lambda: stream.durable > sent)
    cluster.crash(SOURCE)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority not in ("", SOURCE))
    assert cluster.judge.violations == []


def test_what_the_log_gave_to_a_server_that_has_heard_nothing_of_it_is_gone_on_with() -> None:
    """Whoever should have told it is dead for good, and what others said to it was lost."""
    cluster = ServersCluster(MIXES["calm"], Random("stranded"))
    passing(cluster, 1.0)
    home = cluster.homes["alpha.h1"]
    eager = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, eager)
    until(cluster, lambda: cluster.servers[SOURCE].node.departures.is_leaving(ENTITY))
    for name in (SOURCE, "alpha.h1", "alpha.h2"):
        cluster.mail.cut(name, TARGET)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority == TARGET)
    cluster.crash(SOURCE)
    cluster.gone[SOURCE] = None
    passing(cluster, 0.2)
    cluster.mail.heal()
    for player in cluster.players:
        player.resting = True
    until(cluster, lambda: cluster.schedule.happened % 256 == 0 and not cluster.unsettled())
    assert (cluster.left_out(ENTITY), cluster.judge.violations) == ("", [])


def test_an_old_copy_at_home_is_not_gone_on_with_while_nobody_can_ask_where_it_came_from() -> None:
    """Who came home died before it had copied anything; what was durable abroad is there, and nowhere else."""
    cluster = ServersCluster(MIXES["calm"], Random("silent"))
    passing(cluster, 1.0)
    home, eager = cluster.homes["alpha.h1"], {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
    home.process.start_soon(home.move, "transfer-1", ENTITY, "beta.s1", eager)
    until(cluster, lambda: cluster.servers["beta.s1"].holding(ENTITY) is not None)
    (owner,) = [player for player in cluster.players if not player.streams[ENTITY].owner]
    stream, sent = owner.streams[ENTITY], owner.streams[ENTITY].sent
    until(cluster, lambda: stream.durable > sent)
    for name in ("alpha.s2", "alpha.s3"):
        cluster.mail.cut(SOURCE, name)
    home.process.start_soon(home.move, "transfer-2", ENTITY, SOURCE, eager)
    until(cluster, lambda: (way := home.store.transfer("transfer-2")) is not None and way.phase is Phase.DONE)
    for one in ("alpha.h1", "alpha.h2"):
        for other in ("beta.h1", "beta.h2"):
            cluster.mail.cut(one, other)
            cluster.mail.cut(other, one)
    cluster.crash(SOURCE)
    cluster.gone[SOURCE] = None
    passing(cluster, 10.0)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.standing, cluster.judge.violations) == (Standing.RECOVERING, [])
    cluster.mail.heal()
    passing(cluster, 10.0)
    assert (cluster.record(ENTITY), cluster.judge.violations) == (record, []), "what it began with is on its disk"
    log = cluster.logs["alpha"]
    log.run("server.drain", {"server": SOURCE, "drain_id": "removed", "now_s": 0.0})
    log.run("server.remove", {"server": SOURCE, "drain_id": "removed"})
    for player in cluster.players:
        player.resting = True
    until(cluster, lambda: cluster.schedule.happened % 256 == 0 and not cluster.unsettled())
    assert (cluster.left_out(ENTITY), cluster.judge.violations) == ("", [])


def test_what_a_takeover_brought_home_is_looked_for_abroad_where_it_had_been_before() -> None:
    """It was there, came home, was to leave again, and whoever was to have it died; then all at home lost it.

    The hand-over that came to nothing had the log forget where it had been: as `slow-ways` 440 did.
    """
    cluster = ServersCluster(MIXES["calm"], Random("taken over"))
    passing(cluster, 1.0)
    home, far = cluster.homes["alpha.h1"], cluster.servers["beta.s1"]

    def moves(transfer_id: str, target: str) -> None:
        home.process.start_soon(home.move, transfer_id, ENTITY, target, EAGER)

    def is_done(transfer_id: str) -> bool:
        way = home.store.transfer(transfer_id)
        return way is not None and way.phase is Phase.DONE

    moves("transfer-1", "beta.s1")
    until(cluster, lambda: is_done("transfer-1"))
    passing(cluster, 2 * COPY_INTERVAL_S)
    for other in (TARGET, OUTSIDE):
        # Nobody at home is to have a copy of what comes back.
        cluster.mail.cut(SOURCE, other)
    moves("transfer-2", SOURCE)
    until(cluster, lambda: is_done("transfer-2"))
    came = cluster.servers[SOURCE].holding(ENTITY)
    assert came is not None
    there = came.life.tick
    cluster.mail.cut(SOURCE, "beta.s1")
    moves("transfer-3", "beta.s1")
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority == "beta.s1")
    cluster.crash("beta.s1")
    far.start()
    until(cluster, lambda: cluster.servers[SOURCE].may_simulate(ENTITY) and home.store.recovery(ENTITY) is None)
    cluster.crash(SOURCE)
    cluster.gone[SOURCE] = None
    log = cluster.logs["alpha"]
    log.run("server.drain", {"server": SOURCE, "drain_id": "removed", "now_s": 0.0})
    log.run("server.remove", {"server": SOURCE, "drain_id": "removed"})
    cluster.mail.heal()
    come_to_rest(cluster)
    (last,) = [one for one in home.parts.takeovers.recent if (one.entity, one.last) == (ENTITY, SOURCE)]
    assert last.tick > there - COPY_TICKS, "it was gone on with from what there was before it had been abroad"
    assert (cluster.unsettled(), cluster.judge.violations) == ("", [])


@pytest.mark.parametrize("away_s", [0.85, 3.0], ids=["until_the_drain_would_be_asked_for_again", "for_long"])
def test_whoever_is_not_answered_asks_again_for_a_server_to_be_opened(away_s: float) -> None:
    """Or all servers of an instance would be drained one after the other, and nobody could take what they have.

    What was asked and answered before is not asked again meanwhile: the drain that is to end would begin anew.
    """
    cluster = ServersCluster(MIXES["calm"], Random("operators"))
    people, log, store = cluster.people, cluster.logs["beta"], cluster.homes["beta.h1"].store
    while not any(name.startswith("beta.") for name in people.drained):
        people.drain()
        passing(cluster, 0.1)
    (drained,) = [name for name in people.drained if name.startswith("beta.")]
    until(cluster, lambda: store.drain(drained) is not None)
    log.is_away = True
    while drained in people.drained:
        people.drain()
    passing(cluster, away_s)
    assert store.drain(drained) is not None
    log.is_away = False
    passing(cluster, 2.0)
    assert store.drain(drained) is None


def test_who_has_not_heard_that_an_entity_has_ended_hears_it_when_it_asks_who_owns_it() -> None:
    cluster = ServersCluster(MIXES["calm"], Random("ended"))
    passing(cluster, 1.0)
    server, record = cluster.servers[SOURCE], cluster.record(ENTITY)
    assert record is not None
    # In the log alone: whoever was to tell its authority has died, say.
    cluster.logs["alpha"].run("entity.delete", {"entity": ENTITY, "by": record.master, "master_rev": record.master_rev})
    passing(cluster, 1.0)
    assert server.holding(ENTITY) is not None
    server.node.owners.want(ENTITY)
    until(cluster, lambda: server.holding(ENTITY) is None)


def test_when_all_lose_power_at_once_what_was_on_disks_is_gone_on_with() -> None:
    """Followers keep copies in memory only; each server has written what lived there long enough."""
    cluster = ServersCluster(MIXES["calm"], Random("power"))
    passing(cluster, 2 * CHECKPOINT_INTERVAL_S)
    then = _applied(cluster)
    assert set(then) == set(cluster.entities)
    assert any(then.values())
    passing(cluster, CHECKPOINT_INTERVAL_S + 2 * COPY_INTERVAL_S)
    for name in cluster.server_names:
        cluster.crash(name)
    for server in cluster.servers.values():
        server.start()
    until(cluster, lambda: len(_applied(cluster)) == len(cluster.entities))
    now = _applied(cluster)
    for entity, sources in then.items():
        assert all(now[entity].get(source, 0) >= upto for source, upto in sources.items()), (entity, then, now)


def _applied(cluster: ServersCluster) -> dict[str, dict[str, int]]:
    """How many inputs of each source have been applied to each entity that is simulated."""
    lives = [holding.life for server in cluster.servers.values() for holding in server.node.holdings]
    return {life.id: dict(life.world) for life in lives}


def test_a_server_that_was_not_told_of_another_owner_hears_of_it_though_nobody_gives_an_input() -> None:
    """The former owner is heard of, so nothing is asked about a silence; and the new one has gone."""
    cluster = ServersCluster(MIXES["absent"], Random("another owner"))
    server, home = cluster.servers[SOURCE], cluster.homes["alpha.h1"]
    held, (former, new) = server.holding(ENTITY), cluster.players[:2]
    assert held is not None
    assert held.life.ownership.owner == former.name
    new.go_away()
    home.process.start_soon(home.take, "ownership-0", "alpha.e5", former.name)
    passing(cluster, 1.0)
    cluster.mail.cut(home.name, SOURCE)
    home.process.start_soon(home.take, "ownership-1", ENTITY, new.name)
    passing(cluster, 1.0)
    cluster.mail.mend(home.name, SOURCE)
    former.resting = True
    # It is there all the same, since it owns something else on that server.
    until(cluster, lambda: held.life.ownership.owner == new.name)


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_transfer_that_the_log_has_not_decided_is_begun_again_where_the_entity_was_taken_and_given_back(
    asks_first: bool,
) -> None:
    """Its server was cut off in the midst of it, and not killed: it knows that order, which has come to nothing."""
    cluster = ServersCluster(MIXES["calm"], Random("given back"))
    log, source, home = cluster.logs["alpha"], cluster.servers[SOURCE], cluster.homes["alpha.h1"]
    passing(cluster, 1.0)
    record = cluster.record(ENTITY)
    assert record is not None
    log.run("entity.change_rights", {"entity": ENTITY, "by": record.master, "orphans": "freeze"})
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, EAGER)
    until(cluster, lambda: (held := source.holding(ENTITY)) is not None and held.life.frozen)
    for name in ("alpha.h1", "alpha.h2"):
        cluster.mail.cut(SOURCE, name)
        cluster.mail.cut(name, SOURCE)
    if not asks_first:
        source.node.departures._send_home = lambda *_args, **_how: None  # type: ignore[method-assign]
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.epoch == 2)
    cluster.mail.heal()
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority == SOURCE)
    if not asks_first:
        del source.node.departures._send_home
    until(cluster, lambda: cluster.servers[TARGET].holding(ENTITY) is not None)
    transfer = home.store.transfer("transfer-1")
    assert transfer is not None
    assert transfer.phase in (Phase.COMMITTED, Phase.DONE)
    come_to_rest(cluster)
    assert cluster.judge.violations == []


@pytest.mark.parametrize("rest_s", [0.1, 5.0])
def test_a_move_asked_for_before_its_source_is_known_to_be_dead_ends_soon_whoever_has_the_entity_by_then(
    rest_s: float,
) -> None:
    """Its order went to the dead one; another move is asked for `rest_s` after the entity was gone on with."""
    cluster = ServersCluster(MIXES["calm"], Random("asked of the dead"))
    home = cluster.homes["alpha.h1"]
    passing(cluster, 1.0)
    cluster.crash(SOURCE)
    passing(cluster, 1.5)
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, EAGER)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority in (TARGET, OUTSIDE))
    passing(cluster, rest_s)
    record = cluster.record(ENTITY)
    assert record is not None
    other = OUTSIDE if record.authority == TARGET else TARGET
    home.process.start_soon(home.move, "transfer-2", ENTITY, other, EAGER)

    def has_result(name: str) -> bool:
        transfer = home.store.transfer(name)
        return transfer is not None and transfer.phase in DECIDED

    until(cluster, lambda: has_result("transfer-1") and has_result("transfer-2"))
    assert cluster.judge.violations == []


@pytest.mark.parametrize("target", [TARGET, OUTSIDE])
def test_failures_row_8_a_move_that_was_permitted_before_its_source_died_happens_from_where_it_is_taken_over(
    target: str,
) -> None:
    """Whoever asked wanted the entity to be there: it is there in the end, whichever of the two takes it over."""
    cluster = ServersCluster(MIXES["calm"], Random("taken over"))
    home = cluster.homes["alpha.h1"]
    passing(cluster, 2.0)
    cluster.crash(SOURCE)
    home.process.start_soon(home.move, "transfer-1", ENTITY, target, EAGER)

    def transfer() -> TransferRecord:
        found = home.store.transfer("transfer-1")
        assert found is not None
        return found

    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and not record.authority)
    assert (transfer().phase, transfer().source) == (Phase.PERMITTED, SOURCE), "pending for whoever asked"
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and bool(record.authority))
    record = cluster.record(ENTITY)
    assert record is not None
    taken_over_by, epoch = record.authority, record.epoch
    until(cluster, lambda: transfer().phase in DECIDED)
    if target == taken_over_by:
        assert (transfer().phase, transfer().reason) == (Phase.REFUSED, Reason.SAME_SERVER), "it is there already"
    else:
        assert transfer().phase in (Phase.COMMITTED, Phase.DONE)
        assert (transfer().source, transfer().epoch) == (taken_over_by, epoch + 1)
    until(cluster, lambda: cluster.servers[target].holding(ENTITY) is not None)
    come_to_rest(cluster)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.authority, cluster.judge.violations) == (target, [])


def orphan_whose_follower_knows_more(parts: ServersParts) -> ServersCluster:
    """It waits for its server, which was killed long after its last checkpoint and right after its last copy."""
    cluster = ServersCluster(MIXES["calm"], Random("waits"), parts)
    cluster.logs["alpha"].run(
        "entity.change_rights", {"entity": ENTITY, "by": cluster.players[0].name, "orphans": "freeze"}
    )
    passing(cluster, 3 * CHECKPOINT_INTERVAL_S)
    cluster.crash(SOURCE)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and not record.authority)
    passing(cluster, 2.0)
    cluster.servers[SOURCE].start()
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.authority == SOURCE)
    come_to_rest(cluster)
    return cluster


def test_what_waited_for_its_server_goes_on_from_the_latest_copy_and_is_handed_back_to_it() -> None:
    """A durable input may be with a follower alone: the server's own checkpoint is of before it."""
    cluster = orphan_whose_follower_knows_more(ServersParts())
    reports = [report for home in cluster.homes.values() for report in home.parts.takeovers.recent]
    (report,) = [report for report in reports if report.entity == ENTITY]
    assert (report.last, report.source) == (SOURCE, "follower")
    assert report.target != SOURCE
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.authority, record.epoch) == (SOURCE, report.epoch + 1), "one hand-over, and it is back"
    assert (cluster.unsettled(), cluster.judge.violations) == ("", [])


def test_its_servers_own_checkpoint_alone_would_undo_what_was_durable() -> None:
    cluster = orphan_whose_follower_knows_more(MUTANTS["own-disk-only"].parts)
    assert {"durable-inputs", "durable-state"} & {violation.kind for violation in cluster.judge.violations}
