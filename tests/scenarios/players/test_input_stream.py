"""A player's stream of inputs against a server's inbox: everything arrives once and in order, whatever gets lost."""

from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors.net.endpoint import LinkDown, Received
from batonpass.authority.model.input_fold import fold
from batonpass.authority.wire.transfer import InputAck, NotHere, NotOwner, Present, decode_link_untrusted, encode_link
from batonpass.client.input_stream import (
    ASK_AFTER_S,
    MAX_IN_FLIGHT,
    MAX_RESEND_S,
    MIN_IN_FLIGHT,
    NOBODY,
    PRESENT_S,
    RESEND_S,
    WINDOW,
    EntityGone,
    InputStream,
)
from batonpass.crypto.keys import Identity
from batonpass.scenarios.players.link_players import ADDRESS_FRESH_S, Players
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from batonpass.simserver.entity.inputs import EntityInbox, InputAdmission
from batonpass.simserver.owners.inactivity import FIRST_SILENCE_S

PLAYER = "alpha.ada"


def applied_by(inbox: EntityInbox) -> int:
    return inbox.cursors[PLAYER].applied if PLAYER in inbox.cursors else 0


class Wire:
    """A stream, an inbox, and a wire between them that loses what the test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.stream = InputStream("alpha.ball", "alpha.s1")
        self.inbox = EntityInbox()

    def send(self, *, lost: bool = False) -> int:
        inputs = self.stream.next_to_send()
        for seq, data in [] if lost else inputs:
            self.inbox.offer(PLAYER, seq, data)
        return len(inputs)

    def tick(self, *, acknowledgement_lost: bool = False) -> int:
        self.inbox.take()
        return 0 if acknowledgement_lost else self.stream.acknowledge(applied_by(self.inbox), self.now_s)

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        overdue = self.stream.overdue(self.now_s)
        if overdue:
            self.stream.start_over(self.now_s)
        return overdue


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 20)),
            st.tuples(st.just("send"), st.booleans()),
            st.tuples(st.just("tick"), st.booleans()),
            st.tuples(st.just("wait"), st.floats(0, 5)),
            st.tuples(st.just("move"), st.integers(1, 3)),
        ),
        max_size=60,
    )
)
def test_everything_is_applied_once_and_in_order_when_the_wire_works_again(steps: list[tuple[str, float]]) -> None:
    wire = Wire()
    for verb, value in steps:
        match verb:
            case "add":
                for _ in range(int(value)):
                    wire.stream.add(b"%d" % wire.stream.sent, wire.now_s)
            case "send":
                wire.send(lost=bool(value))
            case "tick":
                wire.tick(acknowledgement_lost=bool(value))
            case "wait":
                wire.wait(value)
            case _:
                wire.stream.retarget(f"alpha.s{value}")
        assert wire.stream.acknowledged <= applied_by(wire.inbox) <= wire.stream.sent
        assert len(wire.stream.waiting) == wire.stream.sent - wire.stream.acknowledged
        assert 0 <= wire.stream.in_flight <= len(wire.stream.waiting)

    rounds = 0
    while wire.stream.waiting:
        wire.send()
        if not wire.tick():
            wire.wait(2 * MAX_RESEND_S)
        rounds += 1
        # A whole window a round once it is open, and few rounds to open it.
        assert rounds < 20 + wire.stream.sent

    assert applied_by(wire.inbox) == wire.stream.sent
    if wire.stream.sent:
        assert wire.inbox.cursors[PLAYER].digest == wire.stream.digest


def test_in_flight_inputs_are_bounded_and_room_comes_with_acknowledgements() -> None:
    wire = Wire()
    for _ in range(200):
        wire.stream.add(b"", wire.now_s)
    assert wire.send() == MAX_IN_FLIGHT
    assert wire.send() == 0
    assert wire.tick() == MAX_IN_FLIGHT
    assert wire.send() == MAX_IN_FLIGHT


def test_after_a_silence_it_begins_with_few_and_doubles() -> None:
    wire = Wire()
    for _ in range(200):
        wire.stream.add(b"", wire.now_s)
    wire.send(lost=True)
    assert wire.wait(2 * RESEND_S)
    sizes = []
    for _ in range(5):
        sizes.append(wire.send())
        wire.tick()
    assert sizes == [MIN_IN_FLIGHT, 8, 16, 32, 64]


def test_repetitions_in_vain_become_rarer_until_something_is_acknowledged() -> None:
    wire = Wire()
    wire.stream.add(b"", wire.now_s)
    waits_s = []
    for _ in range(6):
        waits_s.append(wire.stream.resend_after_s)
        wire.send(lost=True)
        assert not wire.wait(wire.stream.resend_after_s)
        assert wire.wait(0.001)
    assert waits_s == [0.25, 0.5, 1.0, 2.0, 4.0, MAX_RESEND_S]
    wire.send()
    wire.tick()
    assert wire.stream.resend_after_s == RESEND_S


def test_the_first_input_after_a_pause_is_not_overdue() -> None:
    wire = Wire()
    wire.wait(60.0)
    wire.stream.add(b"", wire.now_s)
    assert not wire.wait(RESEND_S / 2)


def test_a_new_authority_is_sent_everything_that_is_not_acknowledged() -> None:
    wire = Wire()
    for _ in range(3):
        wire.stream.add(b"", wire.now_s)
    assert wire.send(lost=True) == 3
    wire.stream.retarget("alpha.s2")
    assert (wire.stream.target, wire.send()) == ("alpha.s2", 3)


def test_an_acknowledgement_of_what_was_never_sent_acknowledges_no_more_than_there_is() -> None:
    wire = Wire()
    wire.stream.add(b"", wire.now_s)
    assert wire.stream.acknowledge(1_000, wire.now_s) == 1
    assert wire.stream.acknowledge(1_000, wire.now_s) == 0


# --- corrected --------------------------------------------------------------------------------------------------------


def correction(owner: str, owner_rev: int, applied: int) -> NotOwner:
    fields = {"reason": "not_owner", "owner": owner, "owner_rev": owner_rev, "applied": applied}
    return NotOwner(entity="alpha.ball", epoch=1, sub=0, **fields)  # type: ignore[arg-type]  # each has its type


def stream_of_three() -> InputStream:
    stream = InputStream("alpha.ball", "alpha.s1")
    for _ in range(3):
        stream.add(b"x", 0.0)
    stream.next_to_send()
    return stream


def test_a_player_that_lost_the_entity_forgets_what_was_not_applied_and_sends_no_more() -> None:
    stream = stream_of_three()
    stream.corrected(correction("alpha.bob", 2, 1), PLAYER, 0.0)
    assert (stream.sent, stream.acknowledged, list(stream.waiting)) == (1, 1, [])
    assert stream.digest == fold(bytes(16), 1, b"x"), "the fold of what counts, and nothing else"
    stream.learn_owner(PLAYER, 3, PLAYER)
    stream.add(b"y", 0.0)
    assert stream.next_to_send() == [(4, b"y")], "it owns it again, and goes on after whatever it gave before"


def test_a_player_that_owns_it_under_another_revision_says_the_same_again() -> None:
    stream = stream_of_three()
    stream.corrected(correction(PLAYER, 4, 1), PLAYER, 0.0)
    assert (stream.owner_rev, stream.next_to_send()) == (4, [(2, b"x"), (3, b"x")])


def test_a_correction_by_somebody_who_knows_less_changes_nothing() -> None:
    stream = stream_of_three()
    stream.learn_owner(PLAYER, 5, PLAYER)
    stream.corrected(correction("alpha.bob", 4, 1), PLAYER, 0.0)
    assert (stream.owner, stream.owner_rev, stream.sent) == ("", 5, 3)


def test_an_entity_that_nobody_owns_takes_nobodys_inputs() -> None:
    stream = stream_of_three()
    stream.corrected(correction("", 2, 0), PLAYER, 0.0)
    assert (stream.owner, stream.next_to_send()) == (NOBODY, [])


def test_servers_that_name_each_other_have_a_player_come_once_until_it_repeats() -> None:
    stream = InputStream("alpha.e", "alpha.s1")
    stream.add(b"x", now_s=0.0)
    there, back = (
        NotHere(entity="alpha.e", moved_to="alpha.s2", epoch=3),
        NotHere(entity="alpha.e", moved_to="alpha.s1"),
    )
    assert stream.follow(there)
    assert stream.target == "alpha.s2"
    assert not stream.follow(back)
    assert not stream.follow(there)
    assert stream.target == "alpha.s2"
    stream.start_over(now_s=1.0)
    assert stream.follow(there)


# --- asking -----------------------------------------------------------------------------------------------------------


def ack(applied: int, durable: int, epoch: int = 1) -> InputAck:
    return InputAck(entity="alpha.ball", applied=applied, durable=durable, tick=1, epoch=epoch, sub=0)


def test_a_player_that_says_nothing_more_finds_out_that_its_last_inputs_were_lost_with_an_authority() -> None:
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=3, durable=1), now_s=10.0)
    assert stream.to_ask_with(10.0 + ASK_AFTER_S) is None, "a copy is under way, as a rule"
    asked = stream.to_ask_with(10.1 + ASK_AFTER_S)
    assert asked == (3, b"x")
    assert stream.to_ask_with(10.2 + ASK_AFTER_S) is None, "not again at once"
    # The authority has died meanwhile, and another one went on from before the second.
    inbox = EntityInbox()
    inbox.offer(PLAYER, 1, b"x")
    inbox.take()
    assert inbox.offer(PLAYER, *asked, base=1) is InputAdmission.GAP
    stream.acknowledged_as(ack(applied_by(inbox), 1, epoch=3), now_s=13.0)
    assert stream.next_to_send() == [(2, b"x"), (3, b"x")]
    assert stream.to_ask_with(99.0) is None, "what waits is repeated anyway"


def test_what_was_durable_and_is_lost_is_not_given_again_and_its_numbers_are_of_nothing_else() -> None:
    """A homeserver went on from an older log, by which an entity has one input, and then from the newest one again."""
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=2, durable=2), now_s=10.0)
    stream.acknowledged_as(ack(applied=1, durable=1, epoch=3), now_s=11.0)
    assert (stream.lost, stream.sent, stream.acknowledged) == (1, 3, 2)
    older, newest = EntityInbox(), EntityInbox()
    for inbox, has in ((older, 1), (newest, 2)):
        for seq in range(1, has + 1):
            inbox.offer(PLAYER, seq, b"x")
        inbox.take()
        for seq, data in stream.next_to_send():
            given = stream.as_input(seq, data)
            assert inbox.offer(PLAYER, seq, data, given.base, given.floor) is InputAdmission.ACCEPTED
        stream.start_over(11.0)
        inbox.take()
        assert inbox.cursors[PLAYER].digest == stream.digest
    stream.acknowledged_as(ack(applied=3, durable=3, epoch=9), now_s=12.0)
    assert (len(stream.waiting), stream.lost, stream.durable_digest) == (0, 1, stream.digest)


def test_whoever_has_authority_since_is_asked_at_once() -> None:
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=3, durable=1), now_s=10.0)
    stream.retarget("alpha.s2")
    assert stream.to_ask_with(10.1) == (3, b"x")


def test_nobody_is_asked_about_what_is_durable() -> None:
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=3, durable=3), now_s=10.0)
    assert stream.to_ask_with(99.0) is None


def test_a_former_owner_hears_that_what_it_gave_was_lost_with_an_authority_and_gives_it_to_nobody() -> None:
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=2, durable=1), now_s=10.0)
    stream.learn_owner("alpha.bob", 2, PLAYER)
    assert stream.to_ask_with(99.0) == (2, b"x")
    lost = NotOwner(entity="alpha.ball", reason="not_owner", owner="alpha.bob", owner_rev=2, applied=1, epoch=3, sub=0)
    stream.corrected(lost, PLAYER, 99.0)
    assert (stream.sent, stream.acknowledged, stream.next_to_send(), stream.given_again) == (1, 1, [], 0)
    assert stream.digest == fold(bytes(16), 1, b"x")
    stream.learn_owner(PLAYER, 3, PLAYER)
    stream.add(b"y", 99.0)
    assert stream.next_to_send() == [(4, b"y")]


def test_a_former_owner_hears_that_what_was_refused_is_in_the_state_that_was_gone_on_with() -> None:
    """Who refused it has died since with all that there was of it, and an earlier authority had applied it before."""
    stream = stream_of_three()
    stream.corrected(correction("alpha.bob", 2, 1), PLAYER, 0.0)
    stream.acknowledged_as(ack(applied=2, durable=2, epoch=9), now_s=10.0)
    assert (stream.sent, stream.durable) == (2, 2)
    assert stream.digest == fold(fold(bytes(16), 1, b"x"), 2, b"x")
    stream.learn_owner(PLAYER, 3, PLAYER)
    stream.add(b"y", 0.0)
    assert stream.next_to_send() == [(4, b"y")], "no number is used twice"


def test_what_was_applied_just_before_its_ownership_ended_is_known_though_an_authority_came_between() -> None:
    stream = stream_of_three()
    stream.acknowledged_as(ack(applied=1, durable=1), now_s=10.0)
    stream.learn_owner("alpha.bob", 2, PLAYER)
    stream.acknowledged_as(ack(applied=1, durable=1, epoch=2), now_s=11.0)
    stream.acknowledged_as(ack(applied=2, durable=1, epoch=2), now_s=11.0)
    assert stream.acknowledged == 2
    stream.corrected(correction("alpha.bob", 2, 2), PLAYER, 12.0)
    assert (stream.sent, stream.acknowledged, list(stream.refused)) == (2, 2, [(3, b"x")])


def test_who_owns_it_again_uses_no_number_twice_though_what_was_refused_reappears() -> None:
    """It was refused by an authority that is dead too, and the copy that is gone on with now had applied it before."""
    stream = stream_of_three()
    stream.corrected(correction("alpha.bob", 2, 1), PLAYER, 0.0)
    stream.learn_owner(PLAYER, 3, PLAYER)
    stream.add(b"new", 0.0)
    ((seq, data),) = stream.next_to_send()
    given = stream.as_input(seq, data)
    inbox = EntityInbox()
    for old in (1, 2, 3):
        inbox.offer(PLAYER, old, b"x")
    inbox.take()
    assert inbox.offer(PLAYER, seq, data, given.base, given.floor) is InputAdmission.ACCEPTED
    assert [item.data for item in inbox.take()] == [b"new"]
    assert stream.acknowledged_as(ack(applied_by(inbox), 1, epoch=9), 1.0) == 1
    assert stream.of_this_ownership(seq, inbox.cursors[PLAYER].digest) == (stream.sent, stream.digest)


def test_who_owns_it_again_goes_on_also_where_nobody_has_heard_of_what_was_refused() -> None:
    stream = stream_of_three()
    stream.corrected(correction("alpha.bob", 2, 1), PLAYER, 0.0)
    stream.learn_owner(PLAYER, 3, PLAYER)
    inbox = EntityInbox()
    assert stream.acknowledged_as(ack(applied=0, durable=0, epoch=9), 1.0) == 0
    assert (stream.lost, stream.given_again) == (0, 0), "what was given under an ownership that is over is settled"
    for data in (b"4", b"5"):
        stream.add(data, 1.0)
    for seq, data in stream.next_to_send():
        given = stream.as_input(seq, data)
        assert inbox.offer(PLAYER, seq, data, given.base, given.floor) is InputAdmission.ACCEPTED
    inbox.take()
    assert stream.acknowledged_as(ack(applied_by(inbox), applied_by(inbox), epoch=9), 2.0) == 2
    assert inbox.cursors[PLAYER].digest == stream.digest


async def test_who_only_watches_says_that_it_is_there_to_whoever_has_the_entities(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    players, said = Players(PLAYER, cast(RestClient, None)), list[tuple[str, str]]()
    for entity, server in (("alpha.a", "alpha.s1"), ("alpha.b", "alpha.s1"), ("alpha.c", "alpha.s2")):
        players._servers[server] = {"link_host": "127.0.0.1", "link_port": 1}
        await players.follow(entity, server)

    def post(peer: str, _: object, message: bytes) -> None:
        present = decode_link_untrusted(message)
        assert isinstance(present, Present)
        said.append((peer, present.entity))

    monkeypatch.setattr(players._link, "post", post)
    with trio.move_on_after(2.5 * PRESENT_S):
        await players._watch()
    first, second = said[:2], said[2:]
    assert {server for server, _ in first} == {server for server, _ in second} == {"alpha.s1", "alpha.s2"}
    assert {entity for _, entity in said} == {"alpha.a", "alpha.b", "alpha.c"}, "each in its turn, to follow it"
    assert PRESENT_S < FIRST_SILENCE_S / 2


class Directory:
    """A home instance of which some members are behind: by consistency, whether they know the entity."""

    def __init__(self, **knows: bool) -> None:
        self.knows = knows
        self.owner, self.owner_rev = PLAYER, 1

    async def call(self, _instance: str, _method: str, path: str, consistency: str = "log", **_: str) -> object:
        await trio.lowlevel.checkpoint()
        if path.startswith("/v1/servers/"):
            return {"name": "alpha.s1", "link_host": "127.0.0.1", "link_port": 1}
        if not self.knows[consistency]:
            raise ApiFailure("not_found", f"there is no {path}")
        return {"authority": "alpha.s1", "owner": self.owner, "owner_rev": self.owner_rev}


@pytest.mark.parametrize(
    ("server", "first_look_up_s"), [("answers", None), ("is silent", 2 * ASK_AFTER_S), ("is down", ASK_AFTER_S)]
)
async def test_home_is_asked_who_has_the_entity_only_when_whoever_should_have_it_says_nothing(
    autojump_clock: MockClock, server: str, first_look_up_s: float | None
) -> None:
    looked_up_s = list[float]()

    class Counting(Directory):
        async def call(self, _instance: str, _method: str, path: str, consistency: str = "log", **more: str) -> object:
            looked_up_s.append(trio.current_time())
            return await super().call(_instance, _method, path, consistency, **more)

    def post(peer: str, _where: object, message: bytes) -> None:
        if server == "is down":
            raise LinkDown(peer, "silent")
        if server == "answers":
            answer = encode_link(ack(1, 0))
            players._take(Received(peer, answer, 0, ("127.0.0.1", 1)))

    players = Players(PLAYER, cast(RestClient, Counting(local=True)))
    players._servers["alpha.s1"] = {"link_host": "127.0.0.1", "link_port": 1}
    stream = await players.follow("alpha.ball", "alpha.s1")
    stream.add(b"push", 0.0)
    stream.next_to_send()
    stream.acknowledged_as(ack(1, 0), 0.0)
    players._link = cast(Any, SimpleNamespace(post=post))
    async with trio.open_nursery() as nursery:
        players._nursery = nursery
        nursery.start_soon(players._repeat)
        await trio.sleep(5 * ASK_AFTER_S)
        nursery.cancel_scope.cancel()
    if first_look_up_s is None:
        assert looked_up_s == []
    else:
        assert first_look_up_s < looked_up_s[0] < first_look_up_s + 3 * RESEND_S


class Elsewhere(Directory):
    """A home instance that says when it was asked where `alpha.s1` is, which was started again on another port."""

    def __init__(self) -> None:
        super().__init__(local=True)
        self.asked_s = list[float]()
        self.is_away = False

    async def call(self, _instance: str, _method: str, path: str, consistency: str = "log", **more: str) -> object:
        if not path.startswith("/v1/servers/"):
            return await super().call(_instance, _method, path, consistency, **more)
        self.asked_s.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise ApiFailure("unavailable", "nobody answers")
        keys = Identity.generate().public.to_jwks()
        return {"name": "alpha.s1", "link_host": "127.0.0.1", "link_port": 2, "keys": keys}


@pytest.mark.parametrize("streams", [1, 40])
async def test_a_server_that_says_nothing_is_looked_for_elsewhere_but_not_by_every_stream(
    autojump_clock: MockClock, streams: int
) -> None:
    home, players = Elsewhere(), Players(PLAYER, cast(RestClient, None))
    players._client = cast(RestClient, home)
    players._servers["alpha.s1"] = {"link_host": "127.0.0.1", "link_port": 1}
    given = [await players.follow(f"alpha.ball-{number}", "alpha.s1") for number in range(streams)]

    def post(peer: str, where: tuple[str, int], message: bytes) -> None:
        entity = getattr(decode_link_untrusted(message), "entity", "")
        if where[1] == 2 and not home.is_away:
            answer = InputAck(entity=entity, epoch=1, sub=0, applied=1, durable=1, tick=1)
            players._take(Received(peer, encode_link(answer), 0, where))

    players._link = cast(Any, SimpleNamespace(post=post))
    home.is_away = True
    async with trio.open_nursery() as nursery:
        players._nursery = nursery
        nursery.start_soon(players._repeat)
        for stream in given:
            assert players.push(stream, b"push")
        await trio.sleep(60)
        assert all(stream.waiting for stream in given), "home is away, and it is not where it was"
        home.is_away = False
        assert await players.drained(MAX_RESEND_S + ADDRESS_FRESH_S)
        nursery.cancel_scope.cancel()
    assert all(later - earlier >= ADDRESS_FRESH_S for earlier, later in pairwise(home.asked_s))


@pytest.mark.parametrize("answers", [4, 2])
async def test_everything_is_waited_for_as_long_as_more_is_acknowledged(
    autojump_clock: MockClock, answers: int
) -> None:
    """However slow who has it is; it is given up when nothing was heard for so long."""
    players = Players(PLAYER, cast(RestClient, Elsewhere()))
    stream = InputStream("alpha.ball", "alpha.s1")
    players.streams["alpha.ball"] = stream
    players._servers["alpha.s1"] = {"link_host": "127.0.0.1", "link_port": 1}
    players._link = cast(Any, SimpleNamespace(post=lambda *_: None))
    for _ in range(4):
        assert players.push(stream, b"push")

    async def acknowledge() -> None:
        for applied in range(1, answers + 1):
            await trio.sleep(9)
            answer = InputAck(entity="alpha.ball", epoch=1, sub=0, applied=applied, durable=applied, tick=1)
            players._take(Received("alpha.s1", encode_link(answer), 0, ("127.0.0.1", 1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(acknowledge)
        began_s = trio.current_time()
        assert await players.drained(10) == (answers == 4)
        assert trio.current_time() - began_s == (36 if answers == 4 else 28)


async def test_the_address_of_a_server_comes_with_the_keys_that_the_link_asks_for(autojump_clock: MockClock) -> None:
    """Who only watches has nothing under way: the link notices the silence, and asks for keys."""
    players = Players(PLAYER, cast(RestClient, Elsewhere()))
    players._servers["alpha.s1"] = {"link_host": "127.0.0.1", "link_port": 1}
    stream, went = InputStream("alpha.ball", "alpha.s1"), list[int]()
    players.streams["alpha.ball"] = stream
    players._link = cast(Any, SimpleNamespace(post=lambda _peer, where, _message: went.append(where[1])))
    players._say_present(stream)
    assert await players.keys_of("alpha.s1") is not None
    players._say_present(stream)
    assert went == [1, 2]


@pytest.mark.parametrize("knows", [{"local": False, "log": False}, {"local": False, "log": True}, {"local": True}])
async def test_what_waits_for_an_entity_that_was_deleted_is_given_up(
    autojump_clock: MockClock, knows: dict[str, bool]
) -> None:
    players = Players(PLAYER, cast(RestClient, Directory(**knows)))
    stream = await players.follow("alpha.ball", "alpha.s1")
    players._link = cast(Any, SimpleNamespace(post=lambda *_: None))
    async with trio.open_nursery() as nursery:
        players._nursery = nursery
        nursery.start_soon(players._repeat)
        for _ in range(WINDOW):
            assert players.push(stream, b"push")
        is_gone = not any(knows.values())
        assert await players.drained(60) == is_gone
        assert (stream.is_gone, stream.sent) == (is_gone, 0 if is_gone else WINDOW)
        with trio.move_on_after(60), pytest.raises(EntityGone) if is_gone else nullcontext():
            await players.push_in_turn(stream, b"push")
        assert len(stream.waiting) == (0 if is_gone else WINDOW)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_who_waits_for_an_ownership_hears_of_it_though_nothing_is_under_way(
    autojump_clock: MockClock, is_deleted: bool
) -> None:
    directory = Directory(local=True, log=True)
    players = Players(PLAYER, cast(RestClient, directory))
    stream = await players.follow("alpha.ball", "alpha.s1")
    players._link = cast(Any, SimpleNamespace(post=lambda *_: None))
    stream.learn_owner("alpha.bob", 2, PLAYER)
    directory.owner, directory.owner_rev = "alpha.bob", 2

    async def others_are_acknowledged() -> None:
        while True:
            await trio.sleep(0.1)
            players._until_acknowledged.unpark_all()

    async def something_changes() -> None:
        await trio.sleep(60)
        if is_deleted:
            directory.knows = {"local": False, "log": False}
        else:
            directory.owner, directory.owner_rev = PLAYER, 3

    async with trio.open_nursery() as nursery:
        players._nursery = nursery
        for begin in (players._repeat, others_are_acknowledged, something_changes):
            nursery.start_soon(begin)
        with trio.fail_after(120), pytest.raises(EntityGone) if is_deleted else nullcontext():
            await players.push_in_turn(stream, b"push")
        assert 60 <= trio.current_time() < 60 + 2 * ASK_AFTER_S
        assert (stream.is_gone, stream.sent) == (is_deleted, 0 if is_deleted else 1)
        nursery.cancel_scope.cancel()


async def test_who_waits_for_an_ownership_goes_on_as_soon_as_it_is_learnt(autojump_clock: MockClock) -> None:
    players = Players(PLAYER, cast(RestClient, directory := Directory(local=True)))
    stream = await players.follow("alpha.ball", "alpha.s1")
    players._link = cast(Any, SimpleNamespace(post=lambda *_: None))
    stream.learn_owner("alpha.bob", 2, PLAYER)
    directory.owner_rev = 3
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            players._nursery = nursery
            nursery.start_soon(players.push_in_turn, stream, b"push")
            await trio.testing.wait_all_tasks_blocked()
            players._look_up(stream)
    assert trio.current_time() < ASK_AFTER_S
