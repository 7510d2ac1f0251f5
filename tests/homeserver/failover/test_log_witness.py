"""What instances keep for each other of where their logs were, and what comes of it when one is restored."""

from typing import Any

import pytest
import trio

from batonpass.authority.errors import MessageError
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.authority.trust.signed_positions import LogPlace, LogPosition
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew
from batonpass.authority.wire.queries import MAX_WITNESSES, LogInquiry, LogWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import OwnerWord
from batonpass.crypto import jose
from batonpass.homeserver.failover.log_witness import LogWitnesses, Witnesses
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.tree.raft.submissions import NoQuorum
from tests.fuzz.world import IDENTITIES
from tests.homeserver.failover.test_foreign_custody import homes, patiently
from tests.homeserver.log.test_log_positions import NONCE
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, until

__all__ = ["homes"]

LOST = 10**6


def position(home: Home, revision: int, instance: str = "alpha") -> str:
    """What this homeserver could have signed, under an office that its log knows nothing of."""
    claims = LogPosition(instance=instance, office=9, mark="0f" * 16, revision=revision).to_claims()
    return jose.sign(claims, sender=home.node.sealer.identity, sender_id=home.node.config.name)


def certificate(home: Home, **changes: Any) -> str:
    claims = CommitCertificate(
        entity="alpha.ball",
        epoch=7,
        sub=0,
        transfer_id="transfer-1",
        source="alpha.s1",
        target="beta.s1",
        tick=5,
        state_hash="0" * 64,
        log=f"9.0f0f0f0f.{LOST}",
    ).to_claims()
    return jose.sign(claims | changes, sender=home.node.sealer.identity, sender_id="alpha.h1")


async def shows(home: Home, server: str, *tokens: str, number: int = 1) -> None:
    """A server shows these with a renewal of its lease."""
    if number == 1:
        await Server(home, server).register()
    message = Renew(server=server, incarnation=1, nonce=NONCE, renewal=number, witnesses=list(tokens))
    await home.node.leases.renew(message, server)


@pytest.mark.parametrize("kind", ["position", "certificate"])
async def test_failures_row_42_what_servers_of_another_instance_alone_have_heard_stops_the_homeserver(
    homes: tuple[Home, Home], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    alpha, beta = homes
    token = position(alpha, LOST) if kind == "position" else certificate(alpha)
    await patiently(lambda: alpha.node.log_witnesses.ask("beta"))
    assert not alpha.node.leases.went_back
    await shows(beta, "beta.p1", token)
    await until(lambda: alpha.node.leases.went_back)
    assert "beta proves" in alpha.node.leases.went_back
    assert alpha.node.leases.granter.office == 0
    await alpha.api.refused(503, "log_went_back", "GET", "/healthz")
    await shows_nothing_of_what_it_would_decide(alpha, beta)
    assert not beta.node.leases.went_back, "its own log is as it was"
    assert sum("log_went_back: beta proves" in record.message for record in caplog.records) == 1


async def shows_nothing_of_what_it_would_decide(alpha: Home, beta: Home) -> None:
    """Who asks repeats it, until the log is the one that it was."""
    asked = OwnerWord(entity="alpha.ball", owner="", owner_rev=1, timeout_s=0)
    opened = OpenedMessage(asked, "beta.h1", Trace("transfer-1"))
    with pytest.raises(NoQuorum):
        await alpha.node.transfers.reply(opened)
    (letter,) = await alpha.node.transfers.replies([opened])
    assert letter.message.why == "undecided"


async def test_who_merely_says_that_a_log_was_elsewhere_stops_nobody_and_the_others_are_heard(
    homes: tuple[Home, Home],
) -> None:
    alpha, beta = homes
    mallory = IDENTITIES["alpha.mallory"]
    claims = LogPosition(instance="alpha", office=9, mark="0f" * 16, revision=LOST).to_claims()
    here = alpha.node.log_witnesses._positions.shown_to("beta.s1")
    untrue = [
        "not a token",
        jose.sign(claims, sender=mallory, sender_id="alpha.h1"),
        jose.sign(claims, sender=mallory, sender_id="alpha.nobody"),
        position(beta, LOST),
        position(alpha, LOST, instance="gamma"),
        certificate(alpha, log=""),
        certificate(alpha, entity="beta.ball"),
    ]
    positions = alpha.node.log_witnesses._positions
    for token in untrue:
        with pytest.raises(MessageError):
            positions.witnessed_untrusted(token)
    assert await positions.missing_of([*untrue, here]) is None
    assert await positions.missing_of([*untrue, here, certificate(alpha)]) == LogPlace(9, LOST, "0f0f0f0f")
    for number, token in enumerate(untrue, 1):
        await shows(beta, "beta.p1", token, number=number)
        await patiently(lambda: alpha.node.log_witnesses.ask("beta"))
    assert not alpha.node.leases.went_back


async def test_what_is_sent_to_servers_of_other_instances_says_where_the_log_stands(homes: tuple[Home, Home]) -> None:
    alpha, beta = homes
    far = await beta.simserver("beta.s1")
    word = OwnerWord(entity="alpha.ball", owner="", owner_rev=1, timeout_s=0)
    await patiently(lambda: alpha.node.parcels.post(word, Trace("owner-00000001"), "beta.s1", on_path=False))
    await until(lambda: far.log_watermark.witnesses)
    (token,) = far.log_watermark.witnesses
    positions = alpha.node.log_witnesses._positions
    assert positions.witnessed_untrusted(token).revision <= alpha.node.store.tree.revision
    await until(lambda: beta.node.log_witnesses._witnesses.of("alpha") == [token])
    await patiently(lambda: alpha.node.log_witnesses.ask("beta"))
    assert not alpha.node.leases.went_back
    assert positions.shown_to("alpha.s1") == "", "those hear it with everything that is sealed for them"
    with pytest.raises(MessageError):
        far.lease.shown_abroad("gamma.h1", token)


class Told:
    """An instance of two members: one of them grants leases, and is shown what servers know."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(
        self, _instance: str, message: LogInquiry, trace: Trace, *, on_path: bool, first: str
    ) -> tuple[LogWord, Trace]:
        self.asked.append(first)
        if first != "beta.h2":
            return LogWord(number=message.number, officer="beta.h2"), trace
        return LogWord(number=message.number, witnesses=["word"]), trace


class Positions:
    """A log that has never been anywhere."""

    async def missing_of(self, tokens: list[str]) -> LogPlace | None:
        return LogPlace(1, 2, tokens[0])


async def test_who_is_shown_what_servers_know_is_asked_and_is_the_first_to_be_asked_from_then_on() -> None:
    found: list[tuple[str, LogPlace]] = []
    told: Any = Told()
    nothing: Any = None

    async def went_back(instance: str, place: LogPlace) -> None:
        found.append((instance, place))

    positions: Any = Positions()
    clock: Any = type("Clock", (), {"monotonic_ns": staticmethod(lambda: 0)})
    asking = LogWitnesses(nothing, nothing, told, positions, nothing, lambda: None, went_back, clock)
    await asking.ask("beta")
    await asking.ask("beta")
    assert told.asked == ["", "beta.h2", "beta.h2"]
    assert found == [("beta", LogPlace(1, 2, "word"))] * 2
    told.exchange = lambda *_args, **_how: _other(told)
    with pytest.raises(InstanceUnreachable):
        await asking.ask("beta")


async def _other(_told: Told) -> tuple[LogWord, Trace]:
    await trio.lowlevel.checkpoint()
    return LogWord(number=10**9), Trace("log-00000001")


async def test_only_homeservers_are_told_and_each_of_its_own_log(homes: tuple[Home, Home]) -> None:
    alpha, beta = homes
    await shows(beta, "beta.p1", position(alpha, LOST))
    asked = LogInquiry(number=3)
    answer = beta.node.log_witnesses.answer
    assert await answer(OpenedMessage(asked, "alpha.h1", Trace("log-00000001"))) == LogWord(
        number=3, witnesses=[position_kept(beta)]
    )
    assert (await answer(OpenedMessage(asked, "beta.h1", Trace("log-00000001")))).witnesses == []
    with pytest.raises(MessageError):
        await beta.node.transfers.reply(OpenedMessage(asked, "beta.p1", Trace("log-00000001")))
    beta.node.leases.granter.left_office()
    assert await answer(OpenedMessage(asked, "alpha.h1", Trace("log-00000001"))) == LogWord(number=3, officer="beta.h1")


def position_kept(home: Home) -> str:
    (token,) = home.node.log_witnesses._witnesses.of("alpha")
    return token


def test_of_each_instance_the_latest_words_are_kept_and_what_a_server_shows_no_more_is_gone() -> None:
    identity = IDENTITIES["alpha.h1"]

    def word(instance: str, revision: int) -> str:
        claims = LogPosition(instance=instance, office=1, mark="0" * 32, revision=revision).to_claims()
        return jose.sign(claims, sender=identity, sender_id=f"{instance}.h1")

    witnesses = Witnesses(lambda instance: instance != "nowhere")
    words = [word("alpha", revision) for revision in range(MAX_WITNESSES + 3)]
    for number, token in enumerate(words):
        witnesses.told(f"beta.s{number}", [token, word("gamma", number), word("nowhere", number), "nonsense"])
    assert witnesses.of("alpha") == words[: -MAX_WITNESSES - 1 : -1]
    assert len(witnesses.of("gamma")) == MAX_WITNESSES
    assert witnesses.of("nowhere") == []
    witnesses.told(f"beta.s{len(words) - 1}", [])
    assert witnesses.of("alpha") == words[-2 : -MAX_WITNESSES - 2 : -1]


def test_failures_row_42_a_word_of_an_instance_that_cannot_be_reached_is_kept_as_soon_as_it_can() -> None:
    claims = LogPosition(instance="alpha", office=1, mark="0" * 32, revision=1).to_claims()
    token = jose.sign(claims, sender=IDENTITIES["alpha.h1"], sender_id="alpha.h1")
    reachable: set[str] = set()
    witnesses = Witnesses(reachable.__contains__)
    witnesses.told("beta.s1", [token])
    assert witnesses.of("alpha") == []
    reachable.add("alpha")
    witnesses.told("beta.s1", [token])
    assert witnesses.of("alpha") == [token], "it shows the same for as long as it lives"


def test_failures_row_42_what_many_say_of_a_restored_log_does_not_displace_the_one_word_of_the_log_before() -> None:
    def word(office: int, mark: str, revision: int) -> str:
        claims = LogPosition(instance="alpha", office=office, mark=mark * 32, revision=revision).to_claims()
        return jose.sign(claims, sender=IDENTITIES["alpha.h1"], sender_id="alpha.h1")

    witnesses, lost = Witnesses(lambda _instance: True), word(2, "0", 19)
    witnesses.told("beta.s0", [lost])
    for number in range(2 * MAX_WITNESSES):
        witnesses.told(f"beta.s{number + 1}", [word(2, "1", 85 + number), word(3, "2", 200 + number)])
    assert lost in witnesses.of("alpha")[:3]
