"""Which lives of a server give up what they have when the log says that they are over."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.machines.lease import LeaseTerms, Renewed
from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew, RenewReply, digest_of, number_of
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.simserver.lease.keeper import SOONEST_NS, LeaseKeeper, Nonces
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from tests.simserver.ports import TrioClock, ports_of

S = 1_000_000_000


async def no_way_back(_position: str) -> bool:
    return False


def keeper_of(
    directory: Path,
    home: Any,
    counts: Counter[str] | None = None,
    log_watermark: LogWatermark | None = None,
    *,
    stepped_down: Callable[[], None] = lambda: None,
    find_way_back: Callable[[str], Awaitable[bool]] = no_way_back,
    has_shared: Callable[[], bool] = lambda: False,
) -> LeaseKeeper:
    """A lease that is bound to a server which does this, and renewed by `home`."""
    ports = ports_of(home=home, renew=getattr(home, "renew", None), counts=counts)
    keeper = LeaseKeeper(ports, Nonces(directory / "lease.json"), log_watermark or LogWatermark(TrioClock()))
    keeper.bind(
        stepped_down=stepped_down, find_way_back=find_way_back, has_shared=has_shared, home_is_back=lambda: None
    )
    return keeper


def nowhere() -> tuple[str, str, int]:
    return "", "", 0


@pytest.mark.parametrize("was_granted", [True, False])
async def test_whoever_hears_that_it_is_over_gives_up_what_it_has_before_it_is_the_next_one(
    was_granted: bool, tmp_path: Path
) -> None:
    """Also if the word that granted its lease never came: it may have been given entities all the same."""
    as_whom: list[int] = []
    keeper = keeper_of(tmp_path, None, stepped_down=lambda: as_whom.append(keeper.incarnation))
    keeper._begin_as(2)
    if was_granted:
        keeper.holder.handle(Renewed(0, LeaseTerms(2 * S)), 1)
    keeper._is_over(3, 5 * S)
    if was_granted:
        # It claims the next one when it asks again.
        keeper._next_incarnation()
    assert as_whom == [2]
    assert keeper.incarnation > 2


async def test_failures_row_42_a_server_whose_home_went_back_stands_still_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gave_up: list[int] = []
    counts: Counter[str] = Counter()
    log_watermark = LogWatermark(TrioClock(), tmp_path / "home_log")
    keeper = keeper_of(tmp_path, None, counts, log_watermark, stepped_down=lambda: gave_up.append(1))
    keeper._begin_as(1)
    now_ns = TrioClock().monotonic_ns()

    def reply(verdict: str, **fields: Any) -> RenewReply:
        return RenewReply.model_validate(
            {"server": "alpha.s1", "incarnation": 1, "renewal": 1, "verdict": verdict, "term_ms": 60_000, **fields}
        )

    assert await keeper._take(reply("granted", position="first"), "alpha.h1", now_ns)
    assert keeper.may_act(now_ns)
    for _ in range(3):
        assert not await keeper._take(reply("went_back"), "alpha.h1", now_ns)
    assert not keeper.may_act(now_ns), "at once, not when the term ends"
    assert keeper.incarnation == 1
    assert not gave_up
    assert counts["log_went_back"] == 1
    assert sum("log_went_back" in record.message for record in caplog.records) == 1
    assert log_watermark.position == "first"
    # The operator has put the log back that was there.
    assert await keeper._take(reply("granted", position="second"), "alpha.h1", now_ns)
    assert keeper.may_act(now_ns)
    assert (keeper.log_went_back, log_watermark.position) == ("", "second")


@pytest.mark.parametrize(
    ("verdict", "more", "why"),
    [
        ("held", {"known": 7}, "another process has the lease of alpha.s1 (incarnation 7) until it is over"),
        ("elsewhere", {"officer": "alpha.h2"}, "alpha.h2 grants leases now"),
        ("elsewhere", {}, "another homeserver grants leases now, and it is not known yet which"),
        ("over", {"known": 3}, "the lease of this incarnation of alpha.s1 is over; the last one is 3"),
    ],
)
async def test_why_a_lease_was_not_granted_is_a_sentence_that_names_the_servers(
    tmp_path: Path, verdict: str, more: dict[str, Any], why: str
) -> None:
    back = Back(tmp_path)
    back.keeper._home = AnyMember()  # type: ignore[assignment]  # of what it is asked for here
    back.keeper._begin_as(1)
    assert not await back.hears(verdict, **more)
    assert back.keeper.why_not == f"alpha.h1 says that {why}"


async def test_a_server_whose_home_has_another_release_says_so_with_both_numbers_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    back = Back(tmp_path)
    back.keeper._begin_as(1)
    assert await back.hears("granted")
    version = PROTOCOL_VERSION + 1
    for _ in range(3):
        assert not await back.hears("other_release", protocol=version)
    said = f"alpha.s1 speaks protocol version {PROTOCOL_VERSION}, and alpha.h1 version {version}"
    assert said in back.keeper.other_release
    assert said in back.keeper.why_not
    assert sum("other_release" in record.getMessage() for record in caplog.records) == 1
    assert (back.keeper.is_alive, back.keeper.incarnation) == (False, 1), "it may be put back"
    assert await back.hears("granted")
    assert (back.keeper.is_alive, back.keeper.other_release) == (True, "")


class AnyMember:
    """A way home that goes to whichever member is named."""

    async def prefer(self, officer: str, *, to: str) -> None:
        await trio.lowlevel.checkpoint()


class Back:
    """A server that has followed a log which went back, and what it is asked to give up when another one counts."""

    def __init__(self, directory: Path) -> None:
        self.log_watermark = LogWatermark(TrioClock(), directory / "home_log")
        self.counts: Counter[str] = Counter()
        self.asked: list[str] = []
        self.is_astray = True
        self.answers = True
        self.keeper = self.new(directory)

    def new(self, directory: Path) -> LeaseKeeper:
        return keeper_of(directory, None, self.counts, self.log_watermark, find_way_back=self.find_way_back)

    async def find_way_back(self, position: str) -> bool:
        assert not self.keeper.may_act(TrioClock().monotonic_ns()), "nothing may go on meanwhile"
        assert self.keeper.log_went_back
        self.asked.append(position)
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise HomeUnreachable("nobody")
        return self.is_astray

    async def hears(self, verdict: str, **fields: Any) -> bool:
        words = {"server": "alpha.s1", "incarnation": 1, "renewal": 1, "verdict": verdict, "term_ms": 60_000}
        reply = RenewReply.model_validate(words | fields)
        return await self.keeper._take(reply, "alpha.h1", TrioClock().monotonic_ns())


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_failures_row_42_who_followed_a_log_that_went_back_gives_up_what_it_gave_before_it_goes_on(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    back = Back(tmp_path)
    back.keeper._begin_as(1)
    assert await back.hears("granted", position="older")
    assert not await back.hears("went_back", position_known=True)
    if is_restarted:
        back.keeper = back.new(tmp_path)
        back.keeper._begin_as(2)
    back.answers = False
    for _ in range(2):
        assert not await back.hears("granted", position="newest")
    assert not back.keeper.may_act(TrioClock().monotonic_ns())
    incarnation, back.answers = back.keeper.incarnation, True
    assert not await back.hears("granted", position="newest"), "that lease was granted to who it was before"
    assert back.asked == ["older"] * 3
    assert back.keeper.incarnation == incarnation + 1
    assert back.counts["came_back_astray"] == 1
    assert await back.hears("granted", position="newest")
    assert back.keeper.may_act(TrioClock().monotonic_ns())
    assert (back.log_watermark.position, back.log_watermark.doubtful) == ("newest", "")
    assert back.asked == ["older"] * 3


async def test_failures_row_42_who_has_followed_no_other_log_goes_on_as_it_is(tmp_path: Path) -> None:
    back = Back(tmp_path)
    back.keeper._begin_as(1)
    back.is_astray = False
    assert await back.hears("granted", position="common")
    assert not await back.hears("went_back", position_known=True)
    assert await back.hears("granted", position="newest")
    assert (back.keeper.incarnation, back.asked) == (1, ["common"])
    assert (back.log_watermark.position, back.log_watermark.doubtful, back.keeper.log_went_back) == ("newest", "", "")


async def test_failures_row_42_whose_log_was_accepted_as_lost_gives_up_what_that_gave(tmp_path: Path) -> None:
    """It may never have heard of the alarm."""
    back = Back(tmp_path)
    back.keeper._begin_as(1)
    assert await back.hears("granted", position="lost")
    assert not await back.hears("granted", position="other", lost=True)
    assert back.asked == ["lost"]
    assert back.keeper.incarnation == 2
    assert await back.hears("granted", position="other")


async def test_a_renewal_says_all_there_is_to_say_also_after_one_was_refused(tmp_path: Path) -> None:
    seen: list[tuple[str | None, str, str | None, int]] = []

    class Refusing:
        members_digest = "0123456789abcdef"

        async def renew(self, message: Renew, trace: Trace) -> None:
            seen.append((message.position, message.members, message.challenge, message.link_port))
            raise HomeRefused("not now", "bad_message")

    keeper = keeper_of(tmp_path, Refusing())
    keeper.begin(lambda: ("http://127.0.0.1:1", "127.0.0.1", 1024))
    keeper._begin_as(1)
    for _ in range(3):
        await keeper._renewed(0)
    assert seen == [("", "0123456789abcdef", "", 1024)] * 3


async def test_the_position_of_the_log_outlives_the_server(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        log = LogWatermark(TrioClock(), tmp_path / "home_log")
        await nursery.start(log.serve)
        log.position = "a.b.c"
        nursery.cancel_scope.cancel()
    assert LogWatermark(TrioClock(), tmp_path / "home_log").position == "a.b.c"
    (tmp_path / "home_log").unlink()
    assert LogWatermark(TrioClock(), tmp_path / "home_log").position == ""


def test_what_it_knows_of_the_others_is_told_apart_by_who_is_alive_and_who_is_drained(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path, None)
    assert keeper.knows == 0
    seen = []
    for peers, aside in (
        (["alpha.s1", "alpha.s2"], []),
        (["alpha.s1", "alpha.s2"], ["alpha.s2"]),
        (["alpha.s1", "alpha.s2", "alpha.s3"], ["alpha.s2"]),
        (["alpha.s1", "alpha.s2", "alpha.s3"], ["alpha.s3"]),
    ):
        keeper._learn_peers(peers, aside)
        assert keeper.knows == number_of(digest_of(peers, aside))
        seen.append(keeper.knows)
    assert len(set(seen)) == len(seen)
    assert keeper.may_follow == ("alpha.s1", "alpha.s2")
    assert "alpha.s3" in keeper.peers, "who is drained has entities that others keep copies of"


@pytest.mark.parametrize("changed", [False, True])
async def test_whom_it_knows_is_said_with_each_renewal_and_word_of_others_is_passed_on(
    changed: bool, tmp_path: Path
) -> None:
    class HomeOfOthers:
        members_digest = "0123456789abcdef"
        asked_again = 0

        async def renew(self, message: Renew, trace: Trace) -> OpenedMessage:
            assert message.members == self.members_digest
            known = {"server": message.server, "incarnation": message.incarnation, "renewal": message.renewal}
            fields = known | {"verdict": "granted", "term_ms": 60_000, "members_changed": changed}
            return OpenedMessage(RenewReply.model_validate(fields), "alpha.h1", trace)

        def members_changed(self) -> None:
            self.asked_again += 1

    home = HomeOfOthers()
    keeper = keeper_of(tmp_path, home)
    keeper._begin_as(1)
    assert await keeper._renewed(TrioClock().monotonic_ns())
    assert home.asked_again == changed


class Homeservers:
    """Those of the instance: they grant each renewal, are dead, or hang for so long that nobody waits any longer."""

    members_digest = ""

    def __init__(self) -> None:
        self.how = "granting"
        self.drained = False
        self.takes_s = 0.0
        self.asked_s: list[float] = []

    async def renew(self, message: Renew, trace: Trace) -> OpenedMessage:
        self.asked_s.append(trio.current_time())
        drained = self.drained
        await trio.sleep(self.takes_s)
        if self.how == "hanging":
            await trio.sleep(12.0)
        if self.how != "granting":
            raise HomeUnreachable(self.how)
        fields = {"server": message.server, "incarnation": message.incarnation, "renewal": message.renewal}
        reply = RenewReply.model_validate(fields | {"verdict": "granted", "term_ms": 6_000, "draining": drained})
        return OpenedMessage(reply, "alpha.h1", trace)


@pytest.mark.parametrize("how", ["dead", "hanging"])
async def test_whether_home_answers_is_known_long_before_the_lease_is_over(
    how: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    home = Homeservers()
    keeper = keeper_of(tmp_path, home)
    keeper.begin(nowhere)
    async with trio.open_nursery() as nursery:
        await nursery.start(keeper.serve)

        async def answers_throughout(seconds: float) -> set[bool]:
            said = set[bool]()
            for _ in range(round(seconds * 20)):
                said.add(keeper.home_answers(TrioClock().monotonic_ns()))
                await trio.sleep(0.05)
            return said

        assert await answers_throughout(20.0) == {True}
        home.how = how
        await trio.sleep(3.5)
        assert keeper.may_act(TrioClock().monotonic_ns()), "it would still hand over"
        assert await answers_throughout(30.0) == {False}
        home.how = "granting"
        await trio.sleep(12.5)
        assert await answers_throughout(20.0) == {True}
        nursery.cancel_scope.cancel()


@pytest.fixture
async def renewing(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[tuple[Homeservers, LeaseKeeper]]:
    """A server that has its lease, and renews it once a second."""
    home = Homeservers()
    keeper = keeper_of(tmp_path, home)
    keeper.begin(nowhere)
    async with trio.open_nursery() as nursery:
        await nursery.start(keeper.serve)
        await trio.sleep(0.01)
        yield home, keeper
        nursery.cancel_scope.cancel()


async def test_whoever_has_to_know_what_home_says_now_hears_it_at_once_and_of_no_question_of_before(
    renewing: tuple[Homeservers, LeaseKeeper],
) -> None:
    home, keeper = renewing
    home.drained, home.takes_s = True, 0.1
    await trio.sleep(1.0)
    assert not keeper.is_drained, "what is under way now says so"
    home.drained = False
    heard: list[tuple[float, bool]] = []
    began_s = trio.current_time()
    keeper.once_renewed(lambda: heard.append((trio.current_time() - began_s, keeper.is_drained)))
    await trio.sleep(0.5)
    ((after_s, was_drained),) = heard
    assert not was_drained
    assert 0.1 <= after_s < 0.25


async def test_home_is_asked_no_faster_however_often_somebody_wants_to_know_and_once_for_all(
    renewing: tuple[Homeservers, LeaseKeeper],
) -> None:
    home, keeper = renewing
    heard: list[int] = []
    before, began_s = len(home.asked_s), trio.current_time()
    for number in range(1000):
        keeper.once_renewed(lambda number=number: heard.append(number))  # type: ignore[misc]
        await trio.sleep(0.001)
    await trio.sleep(0.1)
    assert heard == list(range(1000))
    assert 10 < len(home.asked_s) - before <= (trio.current_time() - began_s) * S / SOONEST_NS + 2


async def test_who_wants_to_know_waits_while_home_grants_nothing(renewing: tuple[Homeservers, LeaseKeeper]) -> None:
    home, keeper = renewing
    heard: list[str] = []
    home.how = "dead"
    keeper.once_renewed(lambda: heard.append(home.how))
    await trio.sleep(3.0)
    assert not heard
    home.how = "granting"
    await trio.sleep(1.0)
    assert heard == ["granting"]


async def test_whoever_waits_for_a_renewal_and_fails_does_not_end_the_renewals(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(tmp_path, None)
    asked: list[float] = []
    heard: list[int] = []

    async def granted(_keeper: LeaseKeeper, sent_ns: int) -> bool:
        asked.append(trio.current_time())
        keeper.is_alive = True
        return True

    def fails() -> None:
        raise RuntimeError("a world's code")

    monkeypatch.setattr(LeaseKeeper, "_asked", granted)
    keeper.begin(nowhere)
    keeper.once_renewed(fails)
    keeper.once_renewed(lambda: heard.append(1))
    with trio.move_on_after(5):
        await keeper.serve()
    assert heard == [1]
    assert len(asked) > 3


async def test_the_word_of_which_a_loss_was_proved_is_not_moved_by_what_the_older_log_says_since(
    tmp_path: Path,
) -> None:
    heard: list[Any] = []
    home = SimpleNamespace(is_member=lambda name: name == "alpha.h1")
    watermark = SimpleNamespace(heard=heard.append, shown_abroad=lambda *word: heard.append(word))
    keeper = keeper_of(tmp_path, home, log_watermark=cast(Any, watermark))
    place = LogPlace(3, 17, "00ff00ff")
    keeper.heard_log("alpha.h1", str(place))
    assert heard == [place]
    keeper.heard_log("alpha.mallory", str(place))
    assert heard == [place], "no member of the instance"
    keeper.log_went_back = "beta proves it"
    keeper.heard_log("alpha.h1", str(place))
    assert heard == [place], "of the log that went back"
    # Of its own instance it goes by what members say to it, never by a token that is shown from elsewhere.
    keeper.shown_abroad("alpha.h1", "no token at all")
    assert heard == [place]


async def test_a_server_says_once_that_it_has_its_lease_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    back = Back(tmp_path)
    back.keeper._begin_as(1)

    def said() -> int:
        return sum("has its lease again" in record.getMessage() for record in caplog.records)

    for _ in range(2):
        assert await back.hears("granted")
    assert said() == 0
    await trio.sleep(600)
    back.keeper._not_granted("nobody answers")
    for _ in range(2):
        assert await back.hears("granted")
    assert said() == 1
