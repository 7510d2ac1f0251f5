"""Renewals have a way of their own: over the link, of one member after the other, and nobody's silence stops them."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors.base.clock import Clock
from batonpass.actors.net.endpoint import LinkDown, Received
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import RENEWAL_CHANNEL, Renew, RenewReply
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import NoAnswer, Parcel, decode_link_untrusted, encode_link
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.simserver.lease.renewal_lane import ASK_NEXT_NS, PATIENCE_NS, RenewalLane, RenewalQuestion
from batonpass.simserver.net.home_answers import HomeUnreachable
from tests.simserver.ports import TrioClock

MEMBERS = ("alpha.h1", "alpha.h2", "alpha.h3")
IDENTITIES = {name: Identity.generate() for name in (*MEMBERS, "alpha.s1")}
RENEW = Renew(server="alpha.s1", incarnation=1, nonce="0" * 32, renewal=7)
TRACE = Trace("renew-00000007")


def reply(verdict: str, sender: str, officer: str = "", trace: Trace = TRACE) -> OpenedMessage:
    fields = {"server": "alpha.s1", "incarnation": 1, "renewal": 7, "verdict": verdict, "officer": officer}
    return OpenedMessage(RenewReply.model_validate(fields), sender, trace)


# --- the question, without any input or output -------------------------------------------------------------------


def test_a_member_that_grants_no_leases_ends_the_question_only_if_the_one_it_names_cannot_answer_any_more() -> None:
    question = RenewalQuestion(TRACE.transfer_id)
    question.asked("alpha.h1")
    question.asked("alpha.h2")
    assert question.heard(reply("elsewhere", "alpha.h2", "alpha.h1")) is None
    assert question.pointer is None, "the one who grants leases was asked, and is only slow"
    granted = reply("granted", "alpha.h1")
    assert question.heard(granted) is granted


def test_of_somebody_who_was_not_asked_and_of_another_question_nothing_is_an_answer() -> None:
    question = RenewalQuestion(TRACE.transfer_id)
    question.asked("alpha.h1")
    assert question.heard(reply("granted", "alpha.h2")) is None
    assert question.heard(reply("granted", "alpha.h1", trace=Trace("renew-00000006"))) is None
    assert question.is_open


ANSWERS = st.tuples(
    st.sampled_from(MEMBERS),
    st.sampled_from(("granted", "returning", "over", "held", "went_back", "elsewhere", "undecided")),
    st.sampled_from(("", *MEMBERS)),
)


@given(asked=st.lists(st.sampled_from(MEMBERS), unique=True), answers=st.lists(ANSWERS))
def test_the_first_verdict_of_a_member_that_was_asked_is_the_answer_whatever_others_say(
    asked: list[str], answers: list[tuple[str, str, str]]
) -> None:
    question, waiting, got = RenewalQuestion(TRACE.transfer_id), set(asked), None
    for member in asked:
        question.asked(member)
    for sender, verdict, officer in answers:
        if verdict == "undecided":
            said = question.heard(OpenedMessage(NoAnswer(why="undecided", reason="no majority"), sender, TRACE))
        else:
            said = question.heard(reply(verdict, sender, officer))
        counts = sender in waiting and verdict not in ("elsewhere", "undecided")
        waiting.discard(sender)
        assert (said is not None) == counts
        got = got or said
        assert question.is_open == bool(waiting)
        if (pointer := question.pointer) is not None:
            assert cast(RenewReply, pointer.message).officer not in waiting


# --- the lane, with members that say what a test has them say ----------------------------------------------------


class Inbox:
    def __init__(self) -> None:
        self.send, self._receive = trio.open_memory_channel[Received](100)

    def __aiter__(self) -> Any:
        return self._receive.__aiter__()


class Instance:
    """Three homeservers, of which each answers as it is told to; it is the home, and the link, of `alpha.s1`."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.asked: list[tuple[str, float]] = []
        self.says: dict[str, Callable[[], Any]] = {}
        self.preferred: list[str] = []
        self.looked_up: list[str] = []
        self.asks_again = 0
        self.is_registered = True
        self.known = {name: IDENTITIES[name].public for name in MEMBERS}
        self.sealers = {name: Sealer.without_log(name, IDENTITIES[name]) for name in IDENTITIES}
        self.lane = RenewalLane(cast(Any, self), self.sealers["alpha.s1"], cast(Any, self), TrioClock())

    # the home

    def members(self) -> Any:
        return iter(
            DirectoryRow(
                name=name,
                role=Role.HOMESERVER,
                keys=IDENTITIES[name].public.to_jwks(),
                rest_url="http://127.0.0.1:1",
                link_host="127.0.0.1",
                link_port=9,
            )
            for name in MEMBERS
        )

    def is_member(self, name: str) -> bool:
        return name in MEMBERS

    def keys_known(self, name: str) -> PublicIdentity | None:
        return self.known.get(name)

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        self.looked_up.append(name)
        return IDENTITIES[name].public

    async def prefer(self, name: str, *, to: str) -> None:
        self.preferred.append(name)

    def members_changed(self) -> None:
        self.asks_again += 1

    # the link

    def claim(self, channel: int) -> Inbox:
        assert channel == RENEWAL_CHANNEL
        return self.inbox

    def post(self, peer: str, _address: tuple[str, int], message: bytes, *, channel: int) -> None:
        assert channel == RENEWAL_CHANNEL
        self.asked.append((peer, trio.current_time()))
        parcel = decode_link_untrusted(message)
        assert isinstance(parcel, Parcel)
        assert parcel.kind == "renew"
        said = self.says.get(peer, lambda: None)()
        if said is not None:
            self.answer(peer, said)

    def answer(self, peer: str, message: Any, sealed_by: str = "") -> None:
        sealer, keys = self.sealers[sealed_by or peer], IDENTITIES["alpha.s1"].public
        parcel = sealer.seal(message, TRACE, to="alpha.s1", keys=keys, now_ns=0, now_s=Clock.unix_s())
        self.inbox.send.send_nowait(Received(peer, encode_link(parcel), RENEWAL_CHANNEL, ("127.0.0.1", 9)))


@pytest.fixture
async def alpha(nursery: trio.Nursery, autojump_clock: MockClock) -> Instance:
    instance = Instance()
    await nursery.start(instance.lane.serve)
    return instance


async def test_whoever_is_asked_first_and_answers_is_the_only_one_that_is_asked(alpha: Instance) -> None:
    alpha.says["alpha.h1"] = lambda: reply("granted", "alpha.h1").message
    answer = await alpha.lane.ask(RENEW, TRACE)
    assert isinstance(answer.message, RenewReply)
    assert (answer.message.verdict, answer.sender) == ("granted", "alpha.h1")
    assert [name for name, _ in alpha.asked] == ["alpha.h1"]
    assert alpha.looked_up == [], "nobody was asked for keys"


async def test_a_dead_member_costs_half_a_second_and_the_one_that_grants_is_asked_first_from_then_on(
    alpha: Instance,
) -> None:
    alpha.says["alpha.h2"] = lambda: reply("granted", "alpha.h2").message
    begun_s = trio.current_time()
    assert (await alpha.lane.ask(RENEW, TRACE)).sender == "alpha.h2"
    assert trio.current_time() - begun_s == pytest.approx(ASK_NEXT_NS / 1e9, abs=0.05)
    assert alpha.preferred == ["alpha.h2"]


async def test_a_member_that_is_only_slow_is_still_heard_after_others_have_pointed_at_it(alpha: Instance) -> None:
    alpha.says["alpha.h2"] = lambda: reply("elsewhere", "alpha.h2", "alpha.h1").message
    alpha.says["alpha.h3"] = lambda: alpha.answer("alpha.h1", reply("granted", "alpha.h1").message)
    assert (await alpha.lane.ask(RENEW, TRACE)).sender == "alpha.h1"


async def test_a_member_that_cannot_decide_says_why_and_the_next_one_is_asked_at_once(alpha: Instance) -> None:
    for name in MEMBERS:
        alpha.says[name] = lambda: NoAnswer(why="undecided", reason="there is no majority")
    begun_s = trio.current_time()
    with pytest.raises(HomeUnreachable, match=r"alpha\.h3: there is no majority"):
        await alpha.lane.ask(RENEW, TRACE)
    assert trio.current_time() - begun_s < ASK_NEXT_NS / 1e9
    assert alpha.asks_again == 1


async def test_when_nobody_answers_the_next_renewal_is_due_after_two_seconds_whatever_the_number_of_members(
    alpha: Instance,
) -> None:
    begun_s = trio.current_time()
    with pytest.raises(HomeUnreachable, match="does not answer"):
        await alpha.lane.ask(RENEW, TRACE)
    assert trio.current_time() - begun_s == pytest.approx(PATIENCE_NS / 1e9, abs=0.05)
    assert [name for name, _ in alpha.asked] == list(MEMBERS)


async def test_a_member_without_a_way_to_it_is_passed_over(alpha: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha.known.pop("alpha.h1")
    post = alpha.post

    def refusing(peer: str, *args: Any, **more: Any) -> None:
        if peer == "alpha.h2":
            raise LinkDown(peer, "the link is being restarted")
        post(peer, *args, **more)

    monkeypatch.setattr(alpha, "post", refusing)
    alpha.says["alpha.h3"] = lambda: reply("granted", "alpha.h3").message
    begun_s = trio.current_time()
    assert (await alpha.lane.ask(RENEW, TRACE)).sender == "alpha.h3"
    assert trio.current_time() - begun_s < ASK_NEXT_NS / 1e9, "nobody was waited for"


async def test_what_somebody_else_has_sealed_and_what_comes_from_strangers_renews_nothing(alpha: Instance) -> None:
    def lies() -> None:
        alpha.answer("alpha.h2", reply("over", "alpha.h1").message, sealed_by="alpha.h1")
        alpha.answer("alpha.h1", reply("over", "alpha.h1").message, sealed_by="alpha.h3")
        alpha.inbox.send.send_nowait(Received("alpha.mallory", b"\x00", RENEWAL_CHANNEL, ("127.0.0.1", 9)))
        alpha.inbox.send.send_nowait(Received("alpha.h3", b"no parcel", RENEWAL_CHANNEL, ("127.0.0.1", 9)))

    alpha.says["alpha.h1"] = lies
    alpha.says["alpha.h3"] = lambda: reply("granted", "alpha.h3").message
    assert (await alpha.lane.ask(RENEW, TRACE)).sender == "alpha.h3"


async def test_keys_are_asked_for_only_if_an_answer_is_signed_with_others_than_those_known(alpha: Instance) -> None:
    alpha.known["alpha.h1"] = IDENTITIES["alpha.h2"].public
    alpha.says["alpha.h1"] = lambda: reply("granted", "alpha.h1").message
    assert (await alpha.lane.ask(RENEW, TRACE)).sender == "alpha.h1"
    assert alpha.looked_up == ["alpha.h1"]
