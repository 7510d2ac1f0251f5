"""Keys that are revoked just after an entity was passed directly with them: nobody can be shown that it was."""

from collections.abc import Callable
from random import Random

import pytest

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.trust.certificates import DelegationGrant, PassCertificate, token_hash
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES

ENTITY, SOURCE, TARGET, OUTSIDE = "alpha.e0", "alpha.s1", "alpha.s2", "alpha.s3"
HOMES = ("alpha.h1", "alpha.h2")
DIRECT = {"direct": True, "transport": "link", "mode": "eager", "requester": ""}


def passing(cluster: ServersCluster, seconds: float) -> None:
    cluster.schedule.run_until(cluster.schedule.now_s + seconds)


def until(cluster: ServersCluster, done: Callable[[], bool]) -> None:
    """Let time pass until it is so, a minute of it at most."""
    assert cluster.schedule.run_until(cluster.schedule.now_s + 60.0, done), "it does not come about"


def settle(cluster: ServersCluster) -> None:
    for player in cluster.players:
        player.resting = True
    until(cluster, lambda: cluster.schedule.happened % 64 == 0 and not cluster.unsettled())
    assert cluster.judge.violations == []


def delegated(name: str, *others: str) -> ServersCluster:
    """A cluster in which an entity may be passed directly, by the source to the target, and `others`."""
    cluster = ServersCluster(MIXES["calm"], Random(name))
    passing(cluster, 1.0)
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.delegate, ENTITY, (SOURCE, TARGET, *others))
    until(cluster, lambda: (held := cluster.servers[SOURCE].holding(ENTITY)) is not None and bool(held.group))
    return cluster


def cut(cluster: ServersCluster, server: str, *others: str) -> None:
    for other in others:
        cluster.mail.cut(server, other)
        cluster.mail.cut(other, server)


def passed_unheard(cluster: ServersCluster) -> None:
    """The target has begun with what the source passed to it, and home has heard of it from neither."""
    cut(cluster, SOURCE, *HOMES)
    cluster.servers[SOURCE].node.departures.wants_to_go(ENTITY, TARGET)
    until(cluster, lambda: (held := cluster.servers[TARGET].holding(ENTITY)) is not None and held.fence == Fence(1, 1))


def revoke(cluster: ServersCluster, server: str) -> None:
    """Everybody has heard of it."""
    cluster.revoke(server)
    for other in cluster.servers.values():
        other.keys.look_again(server)


def begins_under(cluster: ServersCluster, server: str, epoch: int) -> Callable[[], bool]:
    return lambda: (held := cluster.servers[server].holding(ENTITY)) is not None and held.fence >= Fence(epoch)


def test_who_was_passed_it_while_the_key_was_good_goes_on_with_it_under_a_raised_fence() -> None:
    """The report of the pass comes when nobody can verify it any more. What the target has made of it is kept."""
    cluster = delegated("begun")
    passed_unheard(cluster)
    passing(cluster, 0.2)
    held = cluster.servers[TARGET].holding(ENTITY)
    assert held is not None
    tick = held.life.tick
    revoke(cluster, SOURCE)
    cluster.mail.heal()
    until(cluster, begins_under(cluster, TARGET, 3))
    again, record = cluster.servers[TARGET].holding(ENTITY), cluster.record(ENTITY)
    assert again is not None
    assert again.life.tick >= tick
    assert record is not None
    assert record.delegation == (), "the chain is no leave under the new fence"
    settle(cluster)


def test_what_was_not_begun_with_goes_on_where_it_stands_still_and_its_transfer_has_a_result() -> None:
    cluster = delegated("not begun")
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, DIRECT)
    until(cluster, lambda: (held := cluster.servers[SOURCE].holding(ENTITY)) is not None and held.life.frozen)
    cut(cluster, SOURCE, TARGET)
    passing(cluster, 0.1)
    revoke(cluster, SOURCE)
    cluster.mail.heal()
    until(cluster, begins_under(cluster, SOURCE, 3))
    transfer = home.store.transfer("transfer-1")
    assert transfer is not None
    assert (transfer.phase, transfer.reason) == (Phase.REFUSED, Reason.UNPROVEN)
    settle(cluster)
    home.process.start_soon(home.move, "transfer-2", ENTITY, OUTSIDE, {**DIRECT, "direct": False})
    until(cluster, lambda: cluster.servers[OUTSIDE].holding(ENTITY) is not None)
    settle(cluster)


@pytest.mark.parametrize("returns", [True, False])
def test_a_key_is_revoked_and_its_server_killed_right_then(returns: bool) -> None:
    """Only who was passed the entity can tell of it, by a chain that nobody can verify. The dead one is swept."""
    cluster = delegated("killed")
    passed_unheard(cluster)
    cluster.crash(SOURCE)
    revoke(cluster, SOURCE)
    cluster.mail.heal()
    if returns:
        cluster.servers[SOURCE].start()
    else:
        cluster.gone[SOURCE] = None
    until(cluster, begins_under(cluster, TARGET, 3))
    until(cluster, lambda: (row := cluster.homes["alpha.h1"].store.lease(SOURCE)) is not None and row.swept)
    assert cluster.servers[SOURCE].has_lease is returns
    settle(cluster)


def test_who_has_it_by_such_a_chain_hands_it_over_through_home_once_it_was_found() -> None:
    """It stands still for that, and its chain is what it brings the log; whoever asks for it is answered."""
    cluster = delegated("leaves")
    passed_unheard(cluster)
    revoke(cluster, SOURCE)
    home = cluster.homes["alpha.h1"]
    held = cluster.servers[TARGET].holding(ENTITY)
    assert held is not None
    cluster.servers[TARGET].node.departures.wants_to_go(ENTITY, OUTSIDE)
    until(cluster, lambda: held.life.frozen)
    until(cluster, begins_under(cluster, TARGET, 3))
    assert not cluster.servers[TARGET].node.departures.is_leaving(ENTITY)
    home.process.start_soon(home.move, "transfer-2", ENTITY, OUTSIDE, {**DIRECT, "direct": False})
    until(cluster, lambda: cluster.servers[OUTSIDE].holding(ENTITY) is not None)
    cluster.mail.heal()
    settle(cluster)


def test_what_the_log_knows_of_is_not_contested_whatever_became_of_the_key() -> None:
    """The chain comes again, as its holder has no shorter one yet: it hands the entity over as if it had none."""
    cluster = delegated("known")
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, DIRECT)
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.fence == Fence(1, 1))
    revoke(cluster, SOURCE)
    until(cluster, lambda: cluster.servers[TARGET].holding(ENTITY) is not None)
    home.process.start_soon(home.move, "transfer-2", ENTITY, OUTSIDE, {**DIRECT, "direct": False})
    until(cluster, lambda: cluster.servers[OUTSIDE].holding(ENTITY) is not None)
    record = cluster.record(ENTITY)
    assert record is not None
    assert record.fence == Fence(2), "one hand-over, and nothing was taken from anybody"
    settle(cluster)


def test_of_a_thief_and_whoever_was_robbed_the_one_that_simulates_it_goes_on() -> None:
    """Somebody has the source's key, and passes an entity to the target that the source goes on simulating."""
    cluster = delegated("thief")
    source, target = cluster.servers[SOURCE], cluster.servers[TARGET]
    held = source.holding(ENTITY)
    assert held is not None
    for name in HOMES:
        cluster.mail.cut(TARGET, name)
    departures = source.node.departures
    frozen = held.life.freeze()
    assert frozen is not None
    held.life.thaw()
    fence = held.fence.passed()
    forged = PassCertificate(
        entity=ENTITY,
        epoch=fence.epoch,
        sub=fence.sub,
        transfer_id="transfer-of-a-thief",
        source=SOURCE,
        target=TARGET,
        tick=frozen.tick,
        state_hash=frozen.state_hash,
        incarnation=target.node.lease.incarnation,
        parent=token_hash(held.chain[-1]),
    )
    token = jose.sign(forged.to_claims(), sender=departures._sealer.identity, sender_id=SOURCE)
    target.node.holdings.start(
        ENTITY, fence, target.node.arrivals._states.take(frozen.state, frozen.state_hash, ENTITY)
    )
    stolen = target.holding(ENTITY)
    assert stolen is not None
    stolen.delegated((*held.chain, token), held.group, fence)
    target.node.arrivals.unsettled.begun(ENTITY, by_chain=True)
    revoke(cluster, SOURCE)
    passing(cluster, 1.0)
    tick = held.life.tick
    cluster.mail.heal()
    target.node.arrivals.unsettled.hurry(ENTITY)
    until(cluster, begins_under(cluster, SOURCE, 3))
    until(cluster, lambda: target.holding(ENTITY) is None)
    again = source.holding(ENTITY)
    assert again is not None
    assert again.life.tick >= tick


def test_what_is_contested_is_not_decided_while_whoever_came_meanwhile_was_not_asked() -> None:
    """Whoever has it goes on until it is asked, and passes it directly to a server that came back since the others were
    asked. That one has heard of no raised fence."""
    cluster = delegated("came meanwhile")
    home, source, target = cluster.homes["alpha.h1"], cluster.servers[SOURCE], cluster.servers[TARGET]
    for name in HOMES:
        cluster.mail.cut(name, SOURCE)
    cluster.crash(TARGET)
    contest = {"entity": ENTITY, "epoch": 1, "sub": 1, "by": TARGET, "transfers": []}
    home.process.start_soon(lambda: home.store.submit("recovery.contest", **contest))
    until(cluster, lambda: (record := cluster.record(ENTITY)) is not None and record.epoch == 2)
    passing(cluster, 0.4)
    target.start()
    until(cluster, lambda: (row := home.store.lease(TARGET)) is not None and row.incarnation == 2 and row.swept)
    source.node.departures.wants_to_go(ENTITY, TARGET)
    until(cluster, lambda: target.holding(ENTITY) is not None)
    cluster.mail.heal()
    for name in HOMES:
        cluster.mail.cut(name, TARGET)
    passing(cluster, 1.0)
    cluster.mail.heal()
    until(cluster, begins_under(cluster, TARGET, 3))
    settle(cluster)


def test_a_chain_that_is_made_up_takes_an_entity_from_nobody_and_can_be_told_once() -> None:
    """No key was ever revoked. Home cannot know that, and looks for the entity; the delegation ends."""
    cluster = delegated("made up")
    home, source = cluster.homes["alpha.h1"], cluster.servers[SOURCE]
    held = source.holding(ENTITY)
    assert held is not None
    tick, anybody = held.life.tick, Identity.generate()

    def made_up(epoch: int) -> tuple[str, str]:
        grant = DelegationGrant(entity=ENTITY, epoch=epoch, sub=0, holder=SOURCE, group=(SOURCE, TARGET))
        first = jose.sign(grant.to_claims(), sender=anybody, sender_id="alpha.h1")
        claimed = PassCertificate(
            entity=ENTITY,
            epoch=epoch,
            sub=1,
            transfer_id="transfer-of-nobody",
            source=SOURCE,
            target=TARGET,
            tick=10**6,
            state_hash="f" * 64,
            parent=token_hash(first),
        )
        return first, jose.sign(claimed.to_claims(), sender=anybody, sender_id=SOURCE)

    refused = []

    async def claim(epoch: int) -> None:
        try:
            await home.parts.notices.learn_passes(ENTITY, made_up(epoch), TARGET)
        except Refused as error:
            refused.append(error.reason)

    home.process.start_soon(claim, 1)
    until(cluster, begins_under(cluster, SOURCE, 3))
    home.process.start_soon(claim, 3)
    until(cluster, lambda: len(refused) == 2)
    assert refused == [Reason.UNPROVEN, Reason.NO_DELEGATION]
    again = source.holding(ENTITY)
    assert again is not None
    assert again.life.tick >= tick
    settle(cluster)


def test_what_was_passed_to_a_server_that_came_meanwhile_is_not_taken_with_what_its_dead_authority_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its holder goes on until it is asked whether it has it, and passes it to a server that was not asked."""
    cluster = delegated("left", OUTSIDE)
    home, holder, third = cluster.homes["alpha.h1"], cluster.servers[TARGET], cluster.servers[OUTSIDE]
    cut(cluster, TARGET, *HOMES)
    passed_unheard(cluster)
    cluster.crash(SOURCE)
    cluster.crash(OUTSIDE)
    cluster.servers[SOURCE].start()
    for name in HOMES:
        cluster.mail.mend(SOURCE, name)
        cluster.mail.mend(name, SOURCE)
    passing(cluster, 0.4)
    third.start()
    until(cluster, lambda: (row := home.store.lease(OUTSIDE)) is not None and row.incarnation == 2 and row.swept)
    # Else home could hear of the pass before it hears the answer.
    monkeypatch.setattr(holder.node.departures.reports, "tell", lambda _: None)
    holder.node.departures.wants_to_go(ENTITY, OUTSIDE)
    until(cluster, lambda: third.holding(ENTITY) is not None)
    cluster.mail.heal()
    cut(cluster, OUTSIDE, *HOMES)
    passing(cluster, 0.7)
    cluster.mail.heal()
    settle(cluster)
    record = cluster.record(ENTITY)
    assert record is not None
    assert (record.fence, record.authority) == (Fence(1, 2), OUTSIDE), "nobody has taken it from there"


def test_what_was_passed_to_a_server_that_stands_still_since_is_not_taken_before_that_one_may_be_back() -> None:
    """Its dead authority told nobody of the pass, and nobody else has a copy of what became of it."""
    cluster = delegated("still")
    home, holder = cluster.homes["alpha.h1"], cluster.servers[TARGET]
    cut(cluster, TARGET, OUTSIDE)
    passed_unheard(cluster)
    passing(cluster, 1.0)
    held = holder.holding(ENTITY)
    assert held is not None
    tick = held.life.tick
    holder.process.stand_still()
    cluster.crash(SOURCE)
    until(cluster, lambda: (row := home.store.lease(TARGET)) is not None and row.phase is LeasePhase.OVER)
    cluster.mail.heal()
    cluster.servers[SOURCE].start()
    passing(cluster, 3.0)
    record = cluster.record(ENTITY)
    assert record is not None
    assert record.authority == SOURCE, "nobody has taken it yet"
    holder.process.go_on()
    settle(cluster)
    found = next(one for server in cluster.servers.values() if (one := server.holding(ENTITY)) is not None)
    assert found.life.tick >= tick


def test_who_may_have_been_passed_it_and_does_not_come_back_is_not_waited_for_any_longer() -> None:
    cluster = delegated("gone")
    home = cluster.homes["alpha.h1"]
    cluster.crash(TARGET)
    cluster.crash(SOURCE)
    until(cluster, lambda: (row := home.store.lease(TARGET)) is not None and row.phase is LeasePhase.OVER)
    passing(cluster, 9.0)
    record = cluster.record(ENTITY)
    assert record is not None
    assert record.authority == SOURCE
    until(cluster, lambda: (known := cluster.record(ENTITY)) is not None and known.authority != SOURCE)
