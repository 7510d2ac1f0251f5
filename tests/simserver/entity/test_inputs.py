"""Exactly-once inputs: whatever the network does to them, each is applied once, in its source's order."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.model.input_fold import fold
from batonpass.simserver.entity import inputs
from batonpass.simserver.entity.inputs import Cursor, EntityInbox, InputAdmission
from batonpass.simserver.world.pending_input import PendingInput
from tests.budget import examples

ADA, BOB = "alpha.ada", "alpha.bob"


def offers(inbox: EntityInbox, source: str, *numbers: int) -> list[InputAdmission]:
    return [inbox.offer(source, seq, b"x") for seq in numbers]


def test_each_source_counts_from_one() -> None:
    inbox = EntityInbox()
    assert offers(inbox, ADA, 1, 2) == [InputAdmission.ACCEPTED] * 2
    assert offers(inbox, BOB, 1) == [InputAdmission.ACCEPTED]
    assert [(item.source, item.seq) for item in inbox.take()] == [(ADA, 1), (ADA, 2), (BOB, 1)]


def test_what_came_before_is_a_duplicate_also_before_it_is_applied() -> None:
    inbox = EntityInbox()
    offers(inbox, ADA, 1)
    assert offers(inbox, ADA, 1) == [InputAdmission.DUPLICATE]
    inbox.take()
    assert offers(inbox, ADA, 1) == [InputAdmission.DUPLICATE]


def test_what_comes_through_a_gap_is_not_kept() -> None:
    inbox = EntityInbox()
    assert offers(inbox, ADA, 2) == [InputAdmission.GAP]
    assert inbox.cursors == {}, "a stranger who never begins takes no place"
    assert offers(inbox, ADA, 1, 3, 2, 3) == [
        InputAdmission.ACCEPTED,
        InputAdmission.GAP,
        InputAdmission.ACCEPTED,
        InputAdmission.ACCEPTED,
    ]


def test_what_waits_is_bounded_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_PENDING", 2)
    inbox = EntityInbox()
    assert offers(inbox, ADA, 1, 2, 3) == [InputAdmission.ACCEPTED, InputAdmission.ACCEPTED, InputAdmission.FULL]
    inbox.take()
    assert offers(inbox, ADA, 3) == [InputAdmission.ACCEPTED], "the source repeats it, and finds room"


def test_what_waits_is_bounded_by_size_for_it_moves_with_the_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_PENDING_BYTES", 10)
    inbox = EntityInbox()
    assert inbox.offer(ADA, 1, b"123456") is InputAdmission.ACCEPTED
    assert inbox.offer(ADA, 2, b"12345") is InputAdmission.FULL
    assert inbox.offer(ADA, 2, b"1234") is InputAdmission.ACCEPTED
    moved = EntityInbox.from_data(inbox.to_data())
    assert moved.offer(ADA, 3, b"1") is InputAdmission.FULL, "also after a hand-over"
    moved.take()
    assert moved.offer(ADA, 3, b"1234567890") is InputAdmission.ACCEPTED


def test_sources_are_bounded_and_the_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_SOURCES", 1)
    inbox = EntityInbox()
    offers(inbox, ADA, 1)
    assert offers(inbox, BOB, 1) == [InputAdmission.FULL]
    assert offers(inbox, ADA, 2) == [InputAdmission.ACCEPTED]


def test_taking_counts_as_applied_and_folds() -> None:
    inbox = EntityInbox()
    inbox.offer(ADA, 1, b"one")
    inbox.offer(ADA, 2, b"two")
    assert inbox.cursors[ADA] == Cursor(2, 0)
    taken = inbox.take()
    assert inbox.cursors[ADA] == Cursor(2, 2, fold(fold(bytes(16), 1, b"one"), 2, b"two"))
    assert inbox.sources_of(taken) == {ADA: 2}
    assert inbox.take() == []


INPUTS = st.lists(st.binary(max_size=3), min_size=2, max_size=6)


@given(INPUTS, st.data())
def test_the_fold_tells_a_lost_a_repeated_a_swapped_and_a_changed_input(sent: list[bytes], data: st.DataObject) -> None:
    numbered = list(enumerate(sent, start=1))
    place = data.draw(st.integers(0, len(sent) - 2))
    lost = numbered[:place] + numbered[place + 1 :]
    repeated = [*numbered[: place + 1], *numbered[place:]]
    swapped = [*numbered[:place], numbered[place + 1], numbered[place], *numbered[place + 2 :]]
    changed = [*numbered[:place], (place + 1, numbered[place][1] + b"!"), *numbered[place + 1 :]]
    folds = {folded(run) for run in (numbered, lost, repeated, swapped, changed)}
    assert len(folds) == 5


def folded(run: list[tuple[int, bytes]]) -> bytes:
    digest = bytes(16)
    for seq, data in run:
        digest = fold(digest, seq, data)
    return digest


# --- the promise ------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """A player that repeats everything after the last acknowledged number (go-back-N)."""

    name: str
    sent: list[bytes] = field(default_factory=list)
    acknowledged: int = 0

    def repeat(self) -> list[PendingInput]:
        return [
            PendingInput(self.name, seq, self.sent[seq - 1]) for seq in range(self.acknowledged + 1, len(self.sent) + 1)
        ]


class Run:
    """Sources, a network, and an inbox that is now and then handed over; with the dumbest model of what is promised."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.sources = [Source(ADA), Source(BOB)]
        self.network: deque[PendingInput] = deque()
        self.inbox = EntityInbox()
        self.applied: dict[str, list[bytes]] = {ADA: [], BOB: []}

    def step(self) -> None:
        action = self.dice.choices(
            (self.send, self.repeat, self.deliver, self.duplicate, self.lose, self.tick, self.hand_over),
            (6, 2, 12, 3, 3, 3, 1),
        )[0]
        action()
        for source in self.sources:
            done = self.applied[source.name]
            assert done == source.sent[: len(done)], "applied: a beginning of what was sent, each once, in order"

    def send(self) -> None:
        source = self.dice.choice(self.sources)
        source.sent.append(self.dice.randbytes(2))
        self.network.append(PendingInput(source.name, len(source.sent), source.sent[-1]))

    def repeat(self) -> None:
        self.network.extend(self.dice.choice(self.sources).repeat())

    def deliver(self) -> None:
        if self.network:
            self.network.rotate(-self.dice.randrange(len(self.network)))
            item = self.network.popleft()
            self.inbox.offer(item.source, item.seq, item.data)

    def duplicate(self) -> None:
        if self.network:
            self.network.append(self.dice.choice(self.network))

    def lose(self) -> None:
        if self.network:
            self.network.popleft()

    def tick(self) -> None:
        taken = self.inbox.take()
        for item in taken:
            self.applied[item.source].append(item.data)
        if self.dice.random() < 0.7:  # acknowledgements are lost too
            for source in self.sources:
                source.acknowledged = self.inbox.sources_of(taken).get(source.name, source.acknowledged)

    def hand_over(self) -> None:
        self.inbox = EntityInbox.from_data(cbor2.loads(cbor2.dumps(self.inbox.to_data(), canonical=True)))

    def settle(self) -> None:
        self.network.clear()
        for source in self.sources:
            for item in source.repeat():
                self.inbox.offer(item.source, item.seq, item.data)
        self.tick()


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64))
def test_every_input_is_applied_exactly_once_in_order_whatever_the_network_does(seed: int) -> None:
    run = Run(seed)
    for _ in range(150):
        run.step()
    run.settle()
    for source in run.sources:
        assert run.applied[source.name] == source.sent
        if source.sent:
            cursor = run.inbox.cursors[source.name]
            digest = folded(list(enumerate(source.sent, start=1)))
            assert cursor == Cursor(len(source.sent), len(source.sent), digest)


@given(st.integers(0, 2**64))
def test_an_inbox_moves_as_it_is(seed: int) -> None:
    run = Run(seed)
    for _ in range(60):
        run.step()
    before = run.inbox.to_data()
    run.hand_over()
    assert run.inbox.to_data() == before


# --- more sources than are remembered ---------------------------------------------------------------------------------

OWNERS = ("alpha.a", "alpha.b", "alpha.c", "alpha.d")
TURNS = st.lists(
    st.tuples(st.sampled_from(OWNERS), st.lists(st.sampled_from(["give", "again", "skip", "tick"]), max_size=8)),
    max_size=14,
)


@settings(max_examples=examples(300))
@given(TURNS)
def test_an_owner_who_was_forgotten_goes_on_where_it_was_and_nothing_is_applied_twice(
    turns: list[tuple[str, list[str]]],
) -> None:
    """Owners take turns, more of them than are remembered; what one gives comes once, or again, or never."""
    inbox = EntityInbox()
    applied: dict[str, list[int]] = {owner: [] for owner in OWNERS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "MAX_SOURCES", 2)
        for owner, acts in turns:
            # Each turn is an ownership of its own; what nobody has applied by then is refused.
            inbox.withdraw(stays="")
            # What a player does that has lost its ownership: it begins anew with what was not applied.
            base = sent = len(applied[owner])
            for act in acts:
                match act:
                    case "give":
                        sent += 1
                        if inbox.offer(owner, sent, b"", base) is InputAdmission.GAP:
                            sent -= 1
                    case "again" if sent > base:
                        assert inbox.offer(owner, sent, b"", base) is InputAdmission.DUPLICATE
                    case "skip":
                        assert inbox.offer(owner, sent + 2, b"", base) is InputAdmission.GAP
                    case "tick":
                        for item in inbox.take():
                            applied[item.source].append(item.seq)
                    case _:
                        pass
            assert len(inbox.cursors) <= 2
            assert sent == base or owner in inbox.cursors, "never the one that is active"
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in applied.values())


def test_the_one_that_is_idle_for_the_longest_time_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_SOURCES", 2)
    inbox = EntityInbox()
    for source, seq in ((ADA, 1), (BOB, 1), (ADA, 2)):
        assert offers(inbox, source, seq) == [InputAdmission.ACCEPTED]
        inbox.take()
    assert offers(inbox, "alpha.eve", 1) == [InputAdmission.ACCEPTED]
    assert set(inbox.cursors) == {ADA, "alpha.eve"}
    assert inbox.offer(BOB, 2, b"", base=1) is InputAdmission.ACCEPTED
    assert inbox.cursors[BOB] == Cursor(2, 1)
    assert inbox.offer("alpha.zoe", 1, b"") is InputAdmission.FULL, "those that have something waiting are not idle"


def test_who_is_not_known_to_a_state_of_before_its_first_input_hears_that_the_others_are_lost() -> None:
    inbox = EntityInbox()
    assert inbox.offer(ADA, 6, b"", base=5) is InputAdmission.GAP, "it does not begin behind what nobody has applied"
    assert inbox.offer(ADA, 1, b"", base=0) is InputAdmission.ACCEPTED


def test_that_somebody_was_forgotten_moves_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_SOURCES", 1)
    inbox = EntityInbox()
    assert "has_forgotten" not in inbox.to_data()
    for source in (ADA, BOB):
        inbox.offer(source, 1, b"")
        inbox.take()
    assert EntityInbox.from_data(inbox.to_data()).offer(ADA, 2, b"", base=1) is InputAdmission.ACCEPTED


def test_a_floor_refuses_what_waits_of_the_ownership_before() -> None:
    inbox = EntityInbox()
    assert [inbox.offer(ADA, seq, b"old") for seq in (1, 2)] == [InputAdmission.ACCEPTED] * 2
    assert inbox.offer(ADA, 4, b"new", base=3, floor=2) is InputAdmission.GAP, "above the floor nothing may be missing"
    assert inbox.offer(ADA, 3, b"new", base=2, floor=2) is InputAdmission.ACCEPTED
    assert inbox.offer(ADA, 3, b"new", base=2, floor=2) is InputAdmission.DUPLICATE
    assert [item.data for item in inbox.take()] == [b"new"]
    assert inbox.cursors[ADA] == Cursor(3, 3, fold(bytes(16), 3, b"new"))


def test_what_is_behind_a_floor_leaves_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_PENDING_BYTES", 3)
    inbox = EntityInbox()
    inbox.offer(ADA, 1, b"old")
    assert inbox.offer(ADA, 2, b"new", base=1, floor=1) is InputAdmission.ACCEPTED


def test_a_cursor_that_is_further_than_the_floor_goes_on_where_it_is() -> None:
    inbox = EntityInbox()
    for seq in (5, 6):
        inbox.offer(ADA, seq, b"", base=4, floor=4)
    inbox.take()
    assert inbox.offer(ADA, 5, b"", base=4, floor=4) is InputAdmission.DUPLICATE
    assert inbox.offer(ADA, 7, b"", base=4, floor=4) is InputAdmission.ACCEPTED


REGAINED = st.lists(
    st.tuples(st.sampled_from(["give", "tick", "copy", "back", "lose", "refuse"]), st.integers(0, 3)), max_size=40
)


@settings(max_examples=examples(300))
@given(REGAINED)
def test_whatever_reappears_each_number_is_of_one_input(acts: list[tuple[str, int]]) -> None:
    """States of before are gone on with at any time, and a player loses the entity and owns it again at any time."""
    inbox, copies = EntityInbox(), [EntityInbox().to_data()]
    used = floor = sent = 0
    meant: dict[int, bytes] = {}
    for act, value in acts:
        match act:
            case "give":
                sent += 1
                used = max(used, sent)
                data = meant.setdefault(sent, b"%d under %d, %d" % (sent, floor, value))
                for seq in range(floor + 1, sent + 1):
                    inbox.offer(ADA, seq, meant[seq], floor, floor)
                assert ADA in inbox.cursors, data
                assert inbox.cursors[ADA].accepted == sent, "the entity takes what it is given under this ownership"
            case "tick":
                for item in inbox.take():
                    assert item.data == meant[item.seq]
            case "copy":
                copies.append(inbox.to_data())
            case "back":
                inbox = EntityInbox.from_data(copies[value % len(copies)])
            case _:
                inbox.withdraw(stays="")
                floor = sent = used
