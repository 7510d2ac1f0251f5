"""A group that goes to another instance is one question there, over real REST, and so is its way back."""

import json
from collections.abc import Sequence

import pytest

from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import AdmitRequest, HandoffReply, HandoffRequest, Message, Parcel
from batonpass.homeserver.rest.groups import MAX_ABROAD
from tests.homeserver.log.test_behind import beta
from tests.homeserver.rest.test_server_routes import Server, handoff
from tests.homeserver.served import Home

__all__ = ["beta"]

MEMBERS = [f"alpha.g{number}" for number in range(40)]


class Questions:
    """What comes to a homeserver about hand-overs, parcel by parcel."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parcels: list[list[Message]] = []
        self.are_waited_for: list[bool] = []
        opened = home.node.parcels.open_untrusted

        async def noted(parcel: Parcel, until_ns: int | None = None) -> list[OpenedMessage]:
            came = await opened(parcel, until_ns)
            if isinstance(came[0].message, HandoffRequest | AdmitRequest):
                # Homes ask each other other things now and then.
                self.are_waited_for.append(until_ns is not None)
                self.parcels.append([one.message for one in came])
            return came

        monkeypatch.setattr(home.node.parcels, "open_untrusted", noted)


async def ask_all(server: Server, letters: Sequence[Letter]) -> list[OpenedMessage]:
    """What a home answers to a parcel of a server of its own."""
    node = server.home.node
    now = {"now_ns": node.clock.monotonic_ns(), "now_s": node.clock.unix_s()}
    keys = node.sealer.identity.public
    parcel = server.sealer.seal_all(letters, to=node.config.name, keys=keys, **now)  # type: ignore[arg-type]
    body = json.loads(json.dumps({"parcel": parcel.to_data()}))
    answer = await server.home.api.do("POST", "/v1/handoffs", body)
    sealed = Parcel.from_data_untrusted(answer["parcel"])
    return server.sealer.open_all_untrusted(sealed, sender=keys, **now)  # type: ignore[arg-type]


def requests(source: str, target: str, group: str, epoch: int) -> list[Letter]:
    return [
        Letter(
            handoff(transfer_id=f"{group}-{number}", entity=entity, source=source, target=target, epoch=epoch),
            Trace(f"{group}-{number}"),
            on_path=True,
        )
        for number, entity in enumerate(MEMBERS)
    ]


async def propose(home: Home, group: str, target: str) -> None:
    fields = {"group": group, "entities": MEMBERS, "target": target, "check_target": False}
    await home.node.store.submit("group.propose", **fields, now_s=home.node.clock.unix_s())


def crossed(opened: OpenedMessage) -> list[str]:
    return [hop.kind for hop in opened.trace.hops]


async def test_a_group_goes_to_another_instance_and_comes_back_with_one_parcel_each_way(
    beta: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, home = beta
    here, there = Server(alpha, "alpha.p1"), Server(home, "beta.p1")
    await here.register()
    await there.register()
    ada = await alpha.player("alpha.ada")
    for entity in MEMBERS:
        fields = {"entity": entity, "kind": "ball", "spawner": ada.name, "server": "alpha.p1", "rule": "allow"}
        await alpha.node.store.submit("entity.create", **fields)
    asked = Questions(home, monkeypatch)
    await propose(alpha, "there-001", "beta.p1")
    answers = await ask_all(here, requests("alpha.p1", "beta.p1", "there-001", 1))
    outcomes = [one.message.outcome for one in answers if isinstance(one.message, HandoffReply)]
    assert outcomes == ["pending"] * (len(MEMBERS) - 1) + ["committed"]
    question = AdmitRequest(transfer_id="there-001-0", entity=MEMBERS[0], target="beta.p1")
    assert (asked.parcels, asked.are_waited_for) == ([[question]], [True])
    assert {tuple(crossed(one)) for one in answers} == {("handoff", "admit", "admit_reply", "handoff_reply")}
    record = alpha.node.store.entity(MEMBERS[0])
    assert record is not None
    assert record.authority == "beta.p1"

    # Its old authority is a visitor's now: what it says to its own home goes on to theirs as it came.
    came = Questions(alpha, monkeypatch)
    await propose(alpha, "back-0001", "alpha.p1")
    answers = await ask_all(there, requests("beta.p1", "alpha.p1", "back-0001", record.epoch))
    assert ([len(parcel) for parcel in came.parcels], came.are_waited_for) == ([len(MEMBERS)], [True])
    assert all(isinstance(one, HandoffRequest) for one in came.parcels[0])
    assert {tuple(crossed(one)) for one in answers} == {("handoff", "handoff", "handoff_reply", "handoff_reply")}
    record = alpha.node.store.entity(MEMBERS[-1])
    assert record is not None
    assert record.authority == "alpha.p1"


async def test_more_than_a_group_that_goes_abroad_may_be_are_refused_with_the_bound(alpha: Home) -> None:
    """Rather than frozen, asked about, and refused when their time is over."""
    many = [f"alpha.g{number}" for number in range(MAX_ABROAD + 1)]
    body = {"entities": many, "to": "beta.s1"}
    assert await alpha.api.refused(409, "full", "POST", "/v1/groups", body) == MAX_ABROAD
    for may_be in ({"entities": many[1:]}, {"to": "alpha.s1"}):
        answer = await alpha.api.call("POST", "/v1/groups", body | may_be)
        assert answer.json()["code"] in ("not_found", "unknown_target")
    apart = await alpha.api.call("POST", "/v1/groups", body | {"all_or_none": False})
    assert apart.status_code == 202
