"""The mail of one entity: what it has room for, what it refuses to read, and what it says when."""

from typing import Any, Final

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.mail import received
from batonpass.simserver.mail.entity_mail import EntityMail, check_mail
from batonpass.simserver.mail.items import MailBudget, MailItem, MailStamp, MailVerdict, PairReply
from batonpass.simserver.mail.outbox import FIRST_WAIT_NS, LATER_NS, MAX_WAIT_NS
from batonpass.simserver.mail.received import MAX_SENDERS, MAX_WAITING_BYTES
from batonpass.simserver.world.messages import MAX_MESSAGE_BYTES, MAX_PAIR, MAX_REFUSALS, MessageRefusal
from tests.budget import examples

BOB: Final = "alpha.bob"
HERE: Final = "alpha.s1"
NOW: Final[MailStamp] = (1, 0, 1)
NONE: Final[MailStamp] = (0, 0, 0)


def new(limit_bytes: int = 1 << 30) -> EntityMail:
    return EntityMail(MailBudget(limit_bytes))


def given_to(mail: EntityMail, sender: str, *sizes: int, first: int = 1, echo: MailStamp = NONE) -> PairReply:
    items = [MailItem((1, first + at), (0, 0), bytes(size)) for at, size in enumerate(sizes)]
    return mail.received.offer(sender, items, echo, NOW, HERE)[0]


def sent(mail: EntityMail, *data: bytes, tick: int = 1, to: str = BOB) -> list[MessageRefusal]:
    return mail.send(1, tick, [(to, each) for each in data])


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_sender_has_at_most_as_much_room_as_is_left_for_others() -> None:
    mail = new()
    for number in range(100):
        given_to(mail, f"beta.s{number}", *([MAX_MESSAGE_BYTES] * 9))
        assert mail.received.size_bytes <= MAX_WAITING_BYTES
        late = given_to(mail, f"alpha.late{number}", 10)
        assert late.verdict is MailVerdict.TAKEN
    assert mail.received.cursors["beta.s0"].waiting_bytes <= MAX_WAITING_BYTES // 4


def test_a_sender_has_no_more_messages_wait_than_a_pair_may_have() -> None:
    mail = new()
    reply = given_to(mail, BOB, *([0] * (MAX_PAIR + 5)))
    assert (reply.verdict, reply.accepted) == (MailVerdict.FULL, (1, MAX_PAIR))
    mail.commit((1, 0, 2))
    assert given_to(mail, BOB, *([0] * (MAX_PAIR + 5))).accepted == (1, MAX_PAIR + 5)


def test_senders_of_one_instance_have_a_quarter_of_the_cursors() -> None:
    mail = new()
    for number in range(MAX_SENDERS):
        given_to(mail, f"evil.e{number}", 1)
        mail.commit((1, 0, number))
    assert len(mail.received.cursors) == MAX_SENDERS // 4
    assert given_to(mail, "evil.one-more", 1).verdict is MailVerdict.FULL
    assert given_to(mail, BOB, 1).verdict is MailVerdict.TAKEN


def test_what_waits_on_a_server_is_bounded_for_all_its_entities_together() -> None:
    budget = MailBudget(100)
    one, other = EntityMail(budget), EntityMail(budget)
    assert sent(one, bytes(60)) == []
    assert sent(other, bytes(60)) == [MessageRefusal.FULL]
    assert given_to(other, BOB, 60).verdict is MailVerdict.FULL
    assert given_to(other, BOB, 40).verdict is MailVerdict.TAKEN
    one.ended()
    assert budget.used_bytes == 40


def test_refusals_that_are_told_are_bounded() -> None:
    mail = new()
    assert len(sent(mail, *([bytes(MAX_MESSAGE_BYTES + 1)] * (MAX_REFUSALS + 3)))) == MAX_REFUSALS + 3
    assert len(mail.for_step(1).refused) == MAX_REFUSALS
    mail.commit((1, 0, 2))
    assert mail.for_step(1).refused == ()


# --- durable ----------------------------------------------------------------------------------------------------------


def test_a_message_is_released_by_a_copy_of_its_tick_and_later_ones_wait_for_theirs() -> None:
    mail = new()
    sent(mail, b"1", tick=3)
    assert mail.outbox.next_items(BOB, HERE, 0) is None
    mail.made_durable(2)
    assert mail.outbox.next_items(BOB, HERE, 0) is None
    mail.made_durable(3)
    sent(mail, b"2", tick=4)
    items = mail.outbox.next_items(BOB, HERE, 0)
    assert items is not None
    assert [item.data for item in items] == [b"1"]
    assert mail.outbox.is_unsent


def test_a_pair_is_closed_once_it_is_durable_that_all_has_left_the_outbox() -> None:
    mail = new()
    sent(mail, b"1", tick=1)
    mail.made_durable(1)
    mail.outbox.next_items(BOB, HERE, 0)
    reply = PairReply(MailVerdict.TAKEN, (1, 1), (1, 1), NOW)
    assert mail.outbox.answered(BOB, HERE, reply, 0), "a tick is wanted"
    assert len(mail.outbox) == 1, "it leaves with a tick"
    mail.commit((1, 0, 5))
    assert len(mail.outbox) == 0
    mail.made_durable(4)
    assert mail.outbox.closing(BOB) is None, "its server could fall back to a copy that has the message"
    assert not mail.outbox.has_closed(BOB)
    mail.made_durable(5)
    assert mail.outbox.closing(BOB) == (HERE, (1, 1))
    assert mail.outbox.closing(BOB) is None, "it is said once"
    assert mail.outbox.has_closed(BOB)


def test_what_is_said_to_be_durable_was_applied_by_a_tick_of_which_a_copy_is_kept() -> None:
    mail = new()
    given_to(mail, BOB, 1)
    mail.commit((1, 0, 2))
    given_to(mail, BOB, 1, first=2)
    mail.commit((1, 0, 3))
    given_to(mail, BOB, 1, first=3)
    assert mail.made_durable(2) == [BOB]
    known = mail.received.reply_to(BOB, NOW)
    assert known is not None
    assert (known[1].accepted, known[1].durable) == ((1, 3), (1, 1))
    assert mail.made_durable(2) == []
    for tick in range(4, 400):
        mail.commit((1, 0, tick))
    assert mail.made_durable(400) == [BOB]


def test_an_idle_pair_is_asked_ever_more_seldom_and_one_that_was_answered_later() -> None:
    mail = new()
    sent(mail, b"1")
    mail.made_durable(1)
    waits, now_ns = [], 0
    for _ in range(6):
        assert mail.outbox.next_items(BOB, HERE, now_ns) is not None
        waits.append(mail.outbox.due_at_ns() - now_ns)
        assert mail.outbox.next_items(BOB, HERE, now_ns) is None
        now_ns = mail.outbox.due_at_ns()
    assert waits == [min(FIRST_WAIT_NS << at, MAX_WAIT_NS) for at in range(6)]
    mail.outbox.answered(BOB, HERE, PairReply(MailVerdict.TAKEN, (1, 1), (0, 0), NOW), now_ns)
    assert mail.outbox.due_at_ns() == now_ns + LATER_NS
    assert mail.outbox.next_items(BOB, HERE, now_ns + LATER_NS) == [], "how far is it?"


def test_who_has_been_forgotten_is_believed_when_it_has_heard_from_the_receiver_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(received, "KEPT_SENDERS", 0)
    mail = new()
    given_to(mail, BOB, 1)
    mail.commit((1, 0, 2))
    mail.received.closed(BOB, (1, 1))
    mail.commit((1, 0, 3))
    assert mail.received.cursors == {}
    again = given_to(mail, BOB, 1, echo=(1, 0, 2))
    assert (again.verdict, again.at) == (MailVerdict.ASKED, NOW)
    assert mail.received.pending == []
    assert given_to(mail, BOB, 1, first=2, echo=(1, 0, 3)).verdict is MailVerdict.TAKEN


# --- what is read -----------------------------------------------------------------------------------------------------

WHOLE: Final = st.integers(-1, 2**63) | st.integers(0, 3)
NAMES: Final = st.sampled_from(["alpha.ada", BOB, "none", ""])
ANY: Final = st.none() | st.booleans() | WHOLE | st.text(max_size=3) | st.binary(max_size=3)
PARTS: Final[dict[str, Any]] = {
    "last": WHOLE,
    "out": st.dictionaries(NAMES, st.lists(st.tuples(WHOLE, WHOLE, st.binary(max_size=3)).map(list), max_size=3)),
    "refused": st.lists(st.tuples(NAMES, WHOLE, WHOLE, st.sampled_from(["full", "what"])).map(list), max_size=3),
    "cursors": st.dictionaries(NAMES, st.tuples(WHOLE, WHOLE, WHOLE, WHOLE).map(list)),
    "pending": st.lists(st.tuples(NAMES, WHOLE, WHOLE, st.binary(max_size=3)).map(list), max_size=3),
    "forgot": st.tuples(WHOLE, WHOLE, WHOLE).map(list),
    "other": ANY,
}
DATA: Final = st.fixed_dictionaries({}, optional={name: part | ANY for name, part in PARTS.items()}) | ANY


@given(DATA)
@settings(max_examples=examples(2000))
def test_what_is_read_is_refused_or_is_what_it_was(data: Any) -> None:
    try:
        check_mail(data)
    except (ValueError, TypeError, KeyError):
        return
    mail = EntityMail.from_data(data, MailBudget(), 7)
    given = mail.for_step(1)
    assert {name: part for name, part in data.items() if part} == mail.to_data()
    assert cbor2.loads(cbor2.dumps(mail.to_data())) == mail.to_data()
    mail.commit((1, 0, 8))
    if mail.outbox.last < 2**63 - 1:
        # An epoch never falls.
        mail.send(2**63 - 1, 8, [(BOB, b"x")])
    assert len(given.messages) == len(data.get("pending", ()))
    check_mail(mail.to_data())


@pytest.mark.parametrize(
    "data",
    [
        {"out": {BOB: []}},
        {"out": {BOB: [[1, 2, b""], [1, 2, b""]]}},
        {"out": {BOB: [[1, 2, bytes(MAX_MESSAGE_BYTES + 1)]]}},
        {"pending": [[BOB, 1, 1, b""]]},
        {"cursors": {BOB: [1, 1, 1, 2]}},
        {"cursors": {BOB: [1, 3, 1, 2]}, "pending": [[BOB, 1, 2, b""]]},
        {"cursors": {BOB: [1, 3, 1, 2]}, "pending": [[BOB, 1, 4, b""]]},
        {"cursors": {f"alpha.e{number}": [1, 1, 1, 1] for number in range(MAX_SENDERS + 1)}},
        {"cursors": {BOB: [1, 99, 0, 0]}, "pending": [[BOB, 1, at + 1, bytes(MAX_MESSAGE_BYTES)] for at in range(17)]},
        {"forgot": [1, 2]},
        {"outbox": {}},
        [],
    ],
)
def test_a_state_that_no_server_wrote_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        check_mail(data)
