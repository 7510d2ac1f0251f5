"""A member whose copy is behind the log says of nothing that it does not exist: it makes sure first, or says it cannot.

So are the followers of a leader that was killed, until the next one tells them what it had committed last.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, HandoffReply
from batonpass.homeserver.config import PeerConfig
from batonpass.tree.member.backend import Backend
from batonpass.tree.raft.submissions import NoQuorum
from batonpass.tree.store.store import Store
from tests.homeserver.rest.test_server_routes import NONCE, Server, handoff
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served

BALL = "alpha.ball-1"
LOCAL = [
    f"/v1/entities/{BALL}?consistency=local",
    f"/v1/entities/{BALL}/transfers?consistency=local",
    "/v1/transfers/transfer-1?consistency=local",
    "/v1/servers/alpha.p1",
    "/v1/players/alpha.ada/keys",
]
LINEARIZABLE = [f"/v1/entities/{BALL}", "/v1/transfers/transfer-1"]
UNKNOWN = [
    "/v1/entities/alpha.none?consistency=local",
    "/v1/transfers/transfer-9?consistency=local",
    "/v1/servers/alpha.none",
    "/v1/players/alpha.none/keys",
]


class Behind:
    """A backend whose copy of the tree is empty until a barrier was passed, or a command answered."""

    def __init__(self, backend: Backend) -> None:
        self.caught_up = backend
        self._empty = Store()
        self.is_behind = True
        self.has_majority = True
        self.barriers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.caught_up, name)

    @property
    def store(self) -> Store:
        return self._empty if self.is_behind else self.caught_up.store

    async def read_barrier(self, timeout_s: float = 2.0) -> None:
        self.barriers += 1
        if not self.has_majority:
            raise NoQuorum("no majority")
        await self.caught_up.read_barrier(timeout_s)
        self.is_behind = False

    async def submit(self, procedure: str, *args: Any, **more: Any) -> Any:
        if not self.has_majority:
            raise NoQuorum("no majority")
        answer = await self.caught_up.submit(procedure, *args, **more)
        # Leases are looked after beside the test, whenever it is time; what the copy has must not depend on that.
        if not procedure.startswith("lease."):
            self.is_behind = False
        return answer


@pytest.fixture
async def paper(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> Server:
    """`alpha.p1` of paper has authority over a ball; a transfer of it to `alpha.p2` is in the log."""
    await Server(alpha, "alpha.p2").register()
    server = Server(alpha, "alpha.p1")
    await server.register()
    monkeypatch.setattr("batonpass.homeserver.transfer.creation.SPAWN_TIMEOUT_S", 0.01)
    ada = await alpha.player("alpha.ada")
    body = {"id": BALL, "kind": "ball", "spawner": ada.name, "server": "alpha.p1"}
    await alpha.api.refused(504, "spawn_unconfirmed", "POST", "/v1/entities", body)
    wish = {"to": "alpha.p2", "transfer_id": "transfer-1"}
    await alpha.api.do("POST", f"/v1/entities/{BALL}/transfers", wish)
    return server


@pytest.fixture
async def behind(paper: Server) -> Behind:
    return fall_behind(paper.home)


def fall_behind(home: Home) -> Behind:
    """From now on the member's copy has nothing, until it catches up."""
    present = home.node.replica
    backend = Behind(present.caught_up if isinstance(present, Behind) else present)
    home.node.backend.current = backend
    return backend


async def test_what_the_copy_does_not_have_yet_is_found(paper: Server) -> None:
    for path in LOCAL + LINEARIZABLE:
        behind = fall_behind(paper.home)
        await paper.home.api.get(path)
        await paper.home.api.get(path)
        assert behind.barriers == (1 if path in LOCAL else 2), path


async def test_what_does_not_exist_is_not_found_by_one_that_is_sure(paper: Server) -> None:
    for path in UNKNOWN:
        behind = fall_behind(paper.home)
        await paper.home.api.refused(404, "not_found", "GET", path)
        assert behind.barriers == 1, path


async def test_without_a_majority_nobody_says_that_something_does_not_exist(paper: Server, behind: Behind) -> None:
    behind.has_majority = False
    for path in LOCAL + LINEARIZABLE + UNKNOWN:
        await paper.home.api.refused(503, "no_quorum", "GET", path)


async def test_without_a_majority_the_copy_is_shown_as_before(paper: Server, behind: Behind) -> None:
    behind.is_behind = behind.has_majority = False
    for path in LOCAL:
        await paper.home.api.get(path)
    assert behind.barriers == 0


async def test_simulation_servers_and_other_instances_find_rows_that_the_copy_does_not_have(paper: Server) -> None:
    query = {"query": "row", "name": "alpha.ada", "nonce": NONCE}
    members = {"query": "members", "nonce": NONCE}
    for name, method, path, body in (
        ("alpha.ada", "GET", f"/v1/directory?nonce={NONCE}&name=alpha.ada", None),
        ("alpha.h1", "GET", f"/v1/directory?nonce={NONCE}&role=homeserver", None),
        ("alpha.ada", "POST", "/v1/federation", {"to_instance": "alpha", "query": query}),
        ("alpha.h1", "POST", "/v1/federation", {"to_instance": "alpha", "query": members}),
    ):
        behind = fall_behind(paper.home)
        (row,) = (await paper.home.api.do(method, path, body))["rows"]
        assert (row["name"], behind.barriers) == (name, 1)


async def test_a_name_of_another_instance_costs_no_barrier(paper: Server, behind: Behind) -> None:
    query = {"query": "row", "name": "beta.ada", "nonce": NONCE}
    answer = await paper.home.api.do("POST", "/v1/federation", {"to_instance": "alpha", "query": query})
    await paper.home.api.refused(404, "not_found", "GET", "/v1/servers/beta.s1")
    assert (answer["rows"], behind.barriers) == ([], 0)


async def test_a_hand_over_is_decided_by_a_member_that_did_not_know_who_asks(paper: Server, behind: Behind) -> None:
    """Otherwise it would be refused as a message of a stranger, which no repetition would change."""
    answer = await paper.ask(handoff(transfer_id="transfer-7", target="alpha.none"))
    assert isinstance(answer, HandoffReply)
    assert (answer.outcome, answer.reason) == ("refused", "unknown_target")
    assert behind.barriers == 1


async def test_a_hand_over_is_to_be_repeated_while_nobody_can_say_who_asks(paper: Server, behind: Behind) -> None:
    behind.has_majority = False
    await paper.home.api.refused(503, "no_quorum", "POST", "/v1/handoffs", {"parcel": paper.seal(handoff())})


async def test_a_transfer_to_a_server_that_the_copy_does_not_have_is_proposed(paper: Server, behind: Behind) -> None:
    wish = {"to": "alpha.p2", "transfer_id": "transfer-2"}
    await paper.home.api.do("POST", f"/v1/entities/{BALL}/transfers", wish)
    assert behind.barriers == 1


async def test_a_player_that_the_copy_does_not_have_is_believed(paper: Server) -> None:
    player = Player("alpha.bob")
    await paper.home.api.do("PUT", "/v1/players/alpha.bob/keys", {"keys": player.keys})
    behind = fall_behind(paper.home)
    proof = player.proof(action="transfer", entity=BALL, to="alpha.p2", transfer_id="transfer-3")
    body = {"to": "alpha.p2", "transfer_id": "transfer-3", "requester": "alpha.bob", "proof": proof}
    await paper.home.api.do("POST", f"/v1/entities/{BALL}/transfers", body)
    assert behind.barriers == 1


@pytest.fixture
async def beta(tmp_path: Path) -> AsyncIterator[tuple[Home, Home]]:
    """`alpha` and `beta`, which know each other."""
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        far = far.model_copy(update={"peers": (PeerConfig(instance="alpha", urls=(near.rest.url,)),)})
        async with served(near) as alpha, served(far) as home:
            for one, other in ((alpha, home), (home, alpha)):
                name = other.node.config.name
                await one.node.federation.members(name.partition(".")[0])
                # A home that asked too early was told that there is no such server, and believes that for a second.
                while await one.node.directory.row(name) is None:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            yield alpha, home


async def test_another_instance_is_told_that_it_may_move_an_entity_to_a_server_that_the_copy_does_not_have(
    beta: tuple[Home, Home],
) -> None:
    """Its log would keep the refusal for good."""
    alpha, home = beta
    await Server(home, "beta.p1").register()
    behind = fall_behind(home)
    request = AdmitRequest(transfer_id="transfer-1", entity=BALL, target="beta.p1")
    reply, _ = await alpha.node.federation.exchange("beta", request, Trace("transfer-1"), on_path=True)
    assert reply == AdmitReply(transfer_id="transfer-1", accepted=True)
    assert behind.barriers == 1


async def test_the_link_is_not_told_that_a_peer_is_gone_while_nobody_can_say_so(paper: Server, behind: Behind) -> None:
    """Of a peer that the directory does not know any longer, the link ends the sessions."""
    directory = paper.home.node.directory
    behind.has_majority = False
    with pytest.raises(NoQuorum):
        await directory.keys_of("alpha.p1")
    behind.has_majority = True
    assert await directory.keys_of("alpha.p1") == paper.sealer.identity.public
    assert await directory.keys_of("alpha.none") is None
