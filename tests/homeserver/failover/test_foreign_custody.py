"""Homes that ask each other about leases: what is answered and believed, and what operators see."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import LeaseOf, LeaseWord
from batonpass.authority.wire.recovery import RaisedItem
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, Collect, LeaseInquiry, Message
from batonpass.homeserver.config import PeerConfig
from batonpass.homeserver.failover.collecting import WhoIsThere
from batonpass.homeserver.failover.foreign_custody import ForeignCustody
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until

T = TypeVar("T")

BALL, FAR = "alpha.ball", "beta.p1"


# Of servers that nobody renews for: it must not end by itself, however slow the machine is.
LEASE_TERM_S = 600.0


@pytest.fixture
async def homes(tmp_path: Path) -> AsyncIterator[tuple[Home, Home]]:
    """`alpha` and `beta`, which know each other."""
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        peers = (PeerConfig(instance="alpha", urls=(near.rest.url,)),)
        far = far.model_copy(update={"peers": peers, "lease_term_s": LEASE_TERM_S})
        async with served(near) as alpha, served(far) as beta:
            yield alpha, beta


async def leased(home: Home, server: str) -> None:
    """A server of paper that has a lease, for as long as one lasts that nobody renews."""
    await Server(home, server).register()
    await home.node.store.submit("lease.claim", server=server, incarnation=1, nonce="0" * 32, previous_nonce="")
    await home.node.store.submit("lease.swept", server=server, incarnation=1, late=0, phase="returning")


async def ended(home: Home, server: str) -> None:
    office = home.node.leases.granter.office
    await home.node.store.submit("lease.expire", server=server, incarnation=1, office=office)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """On a busy machine an answer may take longer than is waited for; whoever asks does so again."""
    with trio.fail_after(60):
        while True:
            try:
                return await ask()
            except InstanceUnreachable:
                await trio.sleep(0.1)


async def asked(alpha: Home, message: Message) -> Any:
    exchange = alpha.node.federation.exchange
    answer, _ = await patiently(lambda: exchange("beta", message, Trace("transfer-1"), on_path=False))
    return answer


async def over(alpha: Home, leases: list[tuple[str, int]]) -> set[tuple[str, int]]:
    return await patiently(lambda: alpha.node.abroad.over("beta", leases))


async def test_failures_row_13_homes_tell_each_other_whom_they_could_give_something_and_who_is_dead(
    homes: tuple[Home, Home],
) -> None:
    alpha, beta = homes
    request = AdmitRequest(transfer_id="transfer-1", entity=BALL, target=FAR)
    leases = [(FAR, 1), (FAR, 2), ("alpha.s1", 1), ("beta.s9", 1)]
    assert (await asked(alpha, request)).reason == "unknown_target"
    await leased(beta, FAR)
    assert await asked(alpha, request) == AdmitReply(transfer_id="transfer-1", accepted=True, incarnation=1)
    word = await asked(alpha, LeaseInquiry(number=7, leases=[], who_is_alive=True))
    assert word == LeaseWord(number=7, over=[], alive=[LeaseOf(server=FAR, incarnation=1)])
    assert await over(alpha, leases) == set()
    await beta.node.store.submit("server.drain", server=FAR, drain_id="drain-1", now_s=0.0)
    assert (await asked(alpha, request)).reason == "draining"
    await beta.node.store.submit("server.open", server=FAR)
    await ended(beta, FAR)
    reply = await asked(alpha, request)
    assert (reply.accepted, reply.reason) == (False, "target_down")
    assert await over(alpha, leases) == {(FAR, 1)}
    assert (await asked(alpha, LeaseInquiry(number=8, leases=[], who_is_alive=True))).alive == []
    await tells_only_the_home_of_an_entity_what_it_has(alpha, beta)


async def tells_only_the_home_of_an_entity_what_it_has(alpha: Home, beta: Home) -> None:
    """Of which copies a server has, and with what it goes on, whoever asks."""
    node, takeovers = await beta.simserver("beta.s1"), alpha.node.takeovers
    with trio.fail_after(60):
        while not (node.counts["bad_message"] and takeovers.counts["late_answers"]):
            for entity in (BALL, "beta.ball"):
                collect = Collect(number=1, items=[RaisedItem(entity=entity, epoch=2, sub=0)])
                with suppress(*NOT_TOLD):
                    await alpha.node.parcels.post(collect, Trace("collect-1"), "beta.s1", on_path=False)
            await trio.sleep(0.2)


class Liar:
    """The way to an instance that speaks for others, or of something else."""

    def __init__(self, word: LeaseWord) -> None:
        self.word = word

    async def exchange(self, instance: str, message: LeaseInquiry, trace: Trace, **how: Any) -> tuple[LeaseWord, Trace]:
        return self.word.model_copy(update={"number": message.number + self.word.number}), trace


class Nobody:
    """Recoveries of an instance without simulation servers."""

    async def here(self) -> WhoIsThere:
        return WhoIsThere({})


async def test_what_another_instance_says_of_others_servers_or_to_another_question_does_not_count() -> None:
    def told(number: int) -> ForeignCustody:
        both = [LeaseOf(server=name, incarnation=1) for name in ("beta.s1", "gamma.s1")]
        way: Any = Liar(LeaseWord(number=number, over=both, alive=both))
        nothing, nobody = cast(Any, None), cast(Any, Nobody())
        return ForeignCustody("alpha", nothing, way, nothing, nothing, nobody, Clock(), lambda: False)

    assert await told(0).over("beta", [("beta.s1", 1)]) == {("beta.s1", 1)}
    assert await told(0)._everybody(("beta",), ()) == WhoIsThere({"beta.s1": 1})
    with pytest.raises(InstanceUnreachable):
        await told(1).over("beta", [("beta.s1", 1)])
    with pytest.raises(InstanceUnreachable):
        await told(1)._everybody(("beta",), ())
    silent = WhoIsThere({}, frozenset({"beta"}))
    assert await told(1)._everybody((), ("beta",)) == silent, "others may have all there is to know"


async def test_failures_row_21_operators_see_which_home_cannot_be_asked(tmp_path: Path) -> None:
    with new_ports() as ports:
        nobody = f"http://127.0.0.1:{ports.choose()}"
        config = homeserver_config(tmp_path, ports)
        config = config.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(nobody,)),)})
        async with served(config) as home:
            await Server(home, "alpha.p1").register()
            store = home.node.store
            await store.submit("entity.create", entity=BALL, kind="ball", spawner="alpha.ada", server="alpha.p1")
            wanted = {"transfer_id": "transfer-1", "entity": BALL, "source": "alpha.p1", "target": FAR}
            frozen = {"epoch": 1, "sub": 0, "tick": 1, "state_hash": "0" * 64}
            await store.submit("transfer.commit", **wanted, **frozen, check_target=False, incarnation=1)
            await until(lambda: any(row["reason"] for row in home.node.abroad.to_data()))
            takeovers = await home.api.get("/v1/recoveries")
            assert takeovers["abroad"] == takeovers["foreign_custody"], "the former name, for one release"
            (seen,) = takeovers["foreign_custody"]
            assert seen.pop("silent_since_s") > 0
            assert seen == {"instance": "beta", "entities": {FAR: 1}, "reason": "home_unreachable"}
            record = store.entity(BALL)
            assert record is not None
            assert (record.authority, record.epoch) == (FAR, 2), "nobody took it"
