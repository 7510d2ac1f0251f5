"""Clocks that show another time: leases, hand-overs and the office of granting leases go on, and people are told."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

import httpx
import pytest
import trio

from batonpass.actors.base.clock import InstanceClock
from batonpass.actors.http.client import HttpClient, trusted_authorities
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import Role
from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.wire.lease import Renew, RenewReply
from batonpass.authority.wire.transfer import Message
from batonpass.homeserver.config import MemberConfig
from batonpass.homeserver.failover.clocks import Clocks
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.tree.net.membership import ChangeRefused
from tests.authority.rows import directory_row
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import DEADLINE_S, Home, MovableClock, homeserver_config, new_ports, until

TOKEN: Final = b"t" * 32
NONCE: Final = "0" * 32


# --- leases ----------------------------------------------------------------------------------------------------------


class Leased(Server):
    """A server on paper that renews its lease, by a clock of its own."""

    ahead_s = 0.0

    def seal(self, message: Message, to: str = "", *, on_path: bool = True) -> dict[str, Any]:
        clock = self.home.node.clock
        with patch.object(clock, "unix_s", lambda: clock.host.unix_s() + self.ahead_s):
            return super().seal(message, to, on_path=on_path)

    async def renew(self, number: int, challenge: str | None) -> RenewReply:
        message = Renew(
            server=self.name, incarnation=1, nonce=NONCE, renewal=number, challenge=challenge, protocol=PROTOCOL_VERSION
        )
        return await self.renewed(message)


@pytest.mark.parametrize("ahead_s", [-1e9, -900.0, 0.0, 900.0, 1e9])
async def test_failures_row_25_a_lease_is_renewed_whatever_the_clock_of_the_server_shows(
    alpha: Home, ahead_s: float
) -> None:
    server = Leased(alpha, "alpha.p1")
    await server.register()
    server.ahead_s = ahead_s
    first = await server.renew(1, "")
    assert first.verdict == "again", "it may be a recording: the homeserver has never given it a challenge"
    assert (await server.renew(2, first.challenge)).verdict in ("granted", "returning")
    again = await server.renew(2, first.challenge)
    assert again.verdict == "elsewhere", "a recording of a renewal that was granted renews nothing"
    assert abs(again.now_ms / 1e3 - alpha.clock.unix_s()) < 60.0


async def test_failures_row_25_a_renewal_without_a_challenge_is_as_old_as_both_clocks_say(alpha: Home) -> None:
    server = Leased(alpha, "alpha.p1")
    await server.register()
    assert (await server.renew(1, None)).verdict in ("granted", "returning")
    server.ahead_s = -61.0
    message = Renew(server="alpha.p1", incarnation=1, nonce=NONCE, renewal=2, protocol=PROTOCOL_VERSION)
    with pytest.raises(MessageError, match="late by the clock here"):
        await server.renewed(message)


async def test_a_renewal_of_before_the_last_challenges_is_not_granted_and_is_told_another_one(alpha: Home) -> None:
    server = Leased(alpha, "alpha.p1")
    await server.register()
    old = (await server.renew(1, "")).challenge
    leases = alpha.node.leases
    period_ns = leases.terms.granter_ns
    later = leases._challenges.now(alpha.node.clock.monotonic_ns() + 2 * period_ns)
    with (
        patch.object(leases._challenges, "now", lambda _: later),
        patch.object(leases._challenges, "is_recent", lambda challenge, _: challenge == later),
    ):
        answer = await server.renew(2, old)
        assert (answer.verdict, answer.challenge) == ("again", later)
        assert (await server.renew(3, answer.challenge)).verdict in ("granted", "returning")


@pytest.mark.parametrize("ahead_s", [-900.0, 900.0])
async def test_a_simulation_server_whose_clock_is_off_is_ready_works_and_says_so(alpha: Home, ahead_s: float) -> None:
    clock = MovableClock()
    clock.ahead_s = ahead_s
    with patch("batonpass.simserver.server.main.Clock", lambda: clock):
        sim = await alpha.simserver("alpha.s1")
    await alpha.simserver("alpha.s2")
    await until(lambda: sim.lease.may_act(sim.clock.monotonic_ns()))
    where = "ahead of" if ahead_s > 0 else "behind"
    # A round trip of up to two seconds says what time it is to a second.
    assert re.search(rf"the clock of alpha\.s1 is (899|90[01])\.\d s {where} the time of its instance", sim.clock.why)
    assert abs(sim.clock.unix_s() - alpha.node.clock.unix_s()) < 60.0
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    for number, target in enumerate(("alpha.s2", "alpha.s1")):
        body = {"transfer_id": f"transfer-{number}", "to": target}
        await alpha.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body)
        assert (await alpha.finished(f"transfer-{number}"))["result"] == "done"


# --- what the members find out ---------------------------------------------------------------------------------------


class Members:
    """The homeservers of an instance, each with its clock, as they find out what time it is."""

    def __init__(self, *names: str) -> None:
        self.hosts = {name: MovableClock() for name in names}
        self.leader = names[0]
        self.asked: list[str] = []
        self.gone: set[str] = set()
        self.refuses: set[str] = set()
        self.reluctant: dict[str, bool] = {}
        rows = [
            directory_row(name, Role.HOMESERVER).changed(rest_url=f"http://{name.replace('.', '-')}") for name in names
        ]
        store: Any = SimpleNamespace(servers=lambda role: rows)
        client = HttpClient(transport=httpx.MockTransport(self._answer))
        self.clocks = {
            name: Clocks(
                name,
                store,
                TOKEN if name != "alpha.stranger" else b"o" * 32,
                client,
                InstanceClock(host, name),
                lambda name=name: self._leadership(name),  # type: ignore[misc]
                lambda name=name: self.leader == name,  # type: ignore[misc]
            )
            for name, host in self.hosts.items()
        }

    def _answer(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host.replace("-", ".")
        if name in self.gone:
            raise httpx.ConnectError("nobody is there")
        return httpx.Response(200, json=self.clocks[name].shown(request.url.params["nonce"]))

    def _leadership(self, name: str) -> Any:
        members = self

        class Leadership:
            @property
            def reluctant(self) -> bool:
                return members.reluctant.get(name, False)

            @reluctant.setter
            def reluctant(self, value: bool) -> None:
                members.reluctant[name] = value

            async def transfer_leadership(self, to: str) -> str:
                members.asked.append(to)
                if to in members.refuses:
                    raise ChangeRefused("not_connected", f"{to} is not connected")
                members.leader = to
                return to

        return Leadership()

    async def look(self) -> None:
        for clocks in self.clocks.values():
            await clocks.look()
        for clocks in self.clocks.values():
            await clocks.give_away()

    def off(self) -> set[str]:
        return {name for name, clocks in self.clocks.items() if clocks._clock.is_off}


@pytest.mark.parametrize("ahead_s", [-1_790_000_000.0, -90.0, 90.0, 1e9])
async def test_a_leader_whose_clock_is_off_gives_its_office_away_and_does_not_take_it_again(ahead_s: float) -> None:
    members = Members("alpha.h1", "alpha.h2", "alpha.h3")
    members.hosts["alpha.h1"].ahead_s = ahead_s
    members.refuses.add("alpha.h2")
    await members.look()
    assert members.off() == {"alpha.h1"}
    assert members.asked == ["alpha.h2", "alpha.h3"]
    assert members.leader == "alpha.h3"
    assert members.reluctant == {"alpha.h1": True, "alpha.h2": False, "alpha.h3": False}
    unix_s = [clocks._clock.unix_s() for clocks in members.clocks.values()]
    assert max(unix_s) - min(unix_s) < 60.0, "all count by the same time"
    members.hosts["alpha.h1"].ahead_s = 0.0
    await members.look()
    assert not members.off()
    assert members.reluctant["alpha.h1"] is False
    assert members.leader == "alpha.h3"


async def test_of_two_whose_clocks_differ_neither_gives_anything_away_and_both_say_so() -> None:
    members = Members("alpha.h1", "alpha.h2")
    members.hosts["alpha.h2"].ahead_s = 90.0
    await members.look()
    assert members.off() == {"alpha.h1", "alpha.h2"}
    assert members.leader == "alpha.h1"
    assert not any(clocks.is_better_elsewhere() for clocks in members.clocks.values())
    assert abs(members.clocks["alpha.h1"].ahead_s["alpha.h2"] - 45.0) < 2.0


async def test_who_does_not_answer_counts_with_what_it_said_last_and_a_stranger_with_nothing() -> None:
    members = Members("alpha.h1", "alpha.h2", "alpha.h3", "alpha.stranger")
    members.hosts["alpha.h1"].ahead_s = 90.0
    members.hosts["alpha.stranger"].ahead_s = 90.0
    await members.look()
    assert "alpha.stranger" not in members.clocks["alpha.h1"].ahead_s
    members.gone |= {"alpha.h2", "alpha.h3"}
    await members.look()
    assert members.clocks["alpha.h1"]._clock.is_off, "a majority said another time"


async def test_an_office_that_goes_with_no_leadership_is_left_to_others_too() -> None:
    members = Members("alpha.h1", "alpha.h2", "alpha.h3")
    members.hosts["alpha.h1"].ahead_s = 90.0
    await members.look()
    assert [clocks.is_better_elsewhere() for clocks in members.clocks.values()] == [True, False, False]


# --- a whole instance ------------------------------------------------------------------------------------------------


@contextmanager
def host_clock(ahead_s: float) -> Iterator[None]:
    clock = MovableClock()
    clock.ahead_s = ahead_s
    with patch("batonpass.homeserver.server.main.Clock", lambda: clock):
        yield


async def test_an_instance_whose_leader_has_another_time_goes_on_and_soon_has_another_leader(tmp_path: Path) -> None:
    """Its followers' clocks are right. Leases are renewed all the while, and the member says what is wrong with it."""
    names = ("alpha.h1", "alpha.h2", "alpha.h3")
    with new_ports() as ports:
        alone = [homeserver_config(tmp_path, ports, name) for name in names]
        members: tuple[MemberConfig, ...] = tuple(config.members[0] for config in alone)
        configs = [config.model_copy(update={"members": members}) for config in alone]
        nodes: list[HomeserverNode] = []
        async with trio.open_nursery() as nursery:

            async def start(number: int) -> None:
                with host_clock(90.0 if number == 2 else 0.0):
                    nodes.append(await nursery.start(run_homeserver, configs[number]))

            for number in range(3):
                # Where the clock is read is patched for one at a time.
                with trio.fail_after(DEADLINE_S):
                    await start(number)
            await until(lambda: all(node.registered for node in nodes))
            off = nodes[2]
            await until(lambda: off.clock.is_off)
            await until(lambda: not off.leads and all(node.replica.status.leader for node in nodes))
            # Of two clocks nobody knows which is right, until the third is heard.
            await until(lambda: not any(node.clock.is_off for node in nodes[:2]))
            async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S) as client:
                health = await client.get(f"{configs[2].rest.url}/healthz")
                assert (health.status_code, health.json()["status"]) == (200, "clock_off")
                assert re.search(r"the clock of alpha\.h3 is (89|9[01])\.\d s ahead", health.json()["clock"])
                view = (await client.get(f"{configs[2].rest.url}/v1/cluster")).json()
                ahead = {member["name"]: member["clock_ahead_s"] for member in view["members"]}
                assert abs(ahead["alpha.h3"] - 90.0) < 5.0
                assert max(abs(ahead[name]) for name in names[:2]) < 5.0
            replica: Any = off.replica
            assert replica.reluctant
            assert not any(cast(Any, node.replica).reluctant for node in nodes[:2])
            await replica.transfer_leadership("alpha.h3", timeout_s=DEADLINE_S)
            await until(lambda: not off.leads and all(node.replica.status.leader for node in nodes))
            nursery.cancel_scope.cancel()
