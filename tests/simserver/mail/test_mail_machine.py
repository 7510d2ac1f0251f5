"""What is promised of messages between entities, on a network that keeps everything and says it again at any time.

Three entities send to each other. They tick, are copied, are handed over, and fall back to any copy that is not older
than the last one that was kept. Each writes down in its own state what it has sent and had: so what it wrote after the
copy to which it falls back is forgotten with it. What each has had of another is always the beginning of what that one
has sent, and in the end it is all of it.
"""

from dataclasses import dataclass, field
from typing import Final

import cbor2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.simserver.mail import received
from batonpass.simserver.mail.entity_mail import EntityMail, check_mail
from batonpass.simserver.mail.items import MailBudget, MailItem, MailStamp, PairReply
from batonpass.simserver.world.messages import MessageNumber, MessageRefusal
from tests.budget import examples

NAMES: Final = ("alpha.ada", "alpha.bob", "beta.cyd")
NOBODY: Final = "alpha.nobody"
SERVERS: Final = ("alpha.s1", "alpha.s2", "beta.s1")


@dataclass(frozen=True)
class Brought:
    """Messages of a pair on their way, or the word that it is closed."""

    sender: str
    to: str
    peer: str
    echo: MailStamp
    items: tuple[MailItem, ...] = ()
    closed: MessageNumber | None = None


@dataclass(frozen=True)
class Said:
    """What a receiver answers, on its way."""

    sender: str
    to: str
    server: str
    reply: PairReply


@dataclass
class History:
    """What an entity's world has written down: it is part of its state."""

    sent: dict[str, list[bytes]] = field(default_factory=dict)
    had: dict[str, list[bytes]] = field(default_factory=dict)
    refused: list[MessageNumber] = field(default_factory=list)
    sent_to_nobody: list[MessageNumber] = field(default_factory=list)

    def copy(self) -> "History":
        return History(
            {to: list(all_of) for to, all_of in self.sent.items()},
            {sender: list(all_of) for sender, all_of in self.had.items()},
            list(self.refused),
            list(self.sent_to_nobody),
        )


@dataclass
class Entity:
    """One entity on its server; `copies` are those that it may fall back to, the oldest is kept."""

    name: str
    server: str
    mail: EntityMail
    budget: MailBudget
    epoch: int = 1
    tick: int = 0
    history: History = field(default_factory=History)
    copies: list[tuple[int, bytes, History]] = field(default_factory=list)

    @property
    def stamp(self) -> MailStamp:
        return self.epoch, 0, self.tick

    def encoded(self) -> bytes:
        return cbor2.dumps(self.mail.to_data())

    def begin(self, tick: int, encoded: bytes, history: History, server: str) -> None:
        data = cbor2.loads(encoded)
        check_mail(data)
        self.mail.ended()
        assert self.budget.used_bytes == 0
        self.mail = EntityMail.from_data(data, self.budget, tick)
        assert self.encoded() == encoded
        self.epoch, self.tick, self.history, self.server = self.epoch + 1, tick, history.copy(), server


class Mails(RuleBasedStateMachine):
    """Entities, their copies, and a network that forgets nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.entities = {}
        for name in NAMES:
            budget = MailBudget()
            entity = self.entities[name] = Entity(name, SERVERS[0], EntityMail(budget), budget)
            entity.copies.append((0, entity.encoded(), History()))
        self.network: list[Brought | Said] = []
        self.now_ns = 0
        self.written = 0

    # --- what worlds do --------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), to=st.lists(st.sampled_from((*NAMES, NOBODY)), max_size=3))
    def tick(self, name: str, to: list[str]) -> None:
        """A world is shown what waits, and sends to some."""
        entity = self.entities[name]
        given, history = entity.mail.for_step(entity.epoch), entity.history
        for message in given.messages:
            history.had.setdefault(message.sender, []).append(message.data)
        history.refused.extend(one.number for one in given.refused)
        sent = []
        for number, receiver in enumerate(to, given.last + 1):
            self.written += 1
            data = b"%d" % self.written
            sent.append((receiver, data))
            if receiver == NOBODY:
                history.sent_to_nobody.append((entity.epoch, number))
            else:
                history.sent.setdefault(receiver, []).append(data)
        entity.tick += 1
        entity.mail.commit(entity.stamp)
        assert entity.mail.send(entity.epoch, entity.tick, sent) == []

    # --- what servers do -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def copy(self, name: str) -> None:
        """A copy is made, that is perhaps never kept."""
        entity = self.entities[name]
        entity.copies.append((entity.tick, entity.encoded(), entity.history.copy()))

    @rule(name=st.sampled_from(NAMES), which=st.integers(0, 9))
    def keep(self, name: str, which: int) -> None:
        """A copy of this life is kept: nothing falls back to an older one."""
        entity = self.entities[name]
        del entity.copies[: which % len(entity.copies)]
        tick = entity.copies[0][0]
        for sender in entity.mail.made_durable(tick):
            known = entity.mail.received.reply_to(sender, entity.stamp)
            assert known is not None
            self.network.append(Said(sender, name, entity.server, known[1]))

    @rule(name=st.sampled_from(NAMES), which=st.integers(0, 9), server=st.sampled_from(SERVERS))
    def fall_back(self, name: str, which: int, server: str) -> None:
        """The server is dead: another one, or the same, resumes a copy. Later ones are of no use then."""
        entity = self.entities[name]
        del entity.copies[1 + which % len(entity.copies) :]
        entity.begin(*entity.copies[-1], server)

    @rule(name=st.sampled_from(NAMES), server=st.sampled_from(SERVERS))
    def hand_over(self, name: str, server: str) -> None:
        """It goes on elsewhere as it is."""
        entity = self.entities[name]
        entity.begin(entity.tick, entity.encoded(), entity.history, server)

    @rule(name=st.sampled_from(NAMES), later_s=st.sampled_from((0.0, 0.01, 0.3, 5.0)))
    def bring(self, name: str, later_s: float) -> None:
        """All that is due is sent."""
        self.now_ns += round(later_s * 1e9)
        entity = self.entities[name]
        outbox = entity.mail.outbox
        for to in outbox.receivers():
            if (closing := outbox.closing(to)) is not None:
                self.network.append(Brought(name, to, entity.server, outbox.echo(to), closed=closing[1]))
            elif to == NOBODY:
                outbox.no_receiver(to, MessageRefusal.NO_SUCH_ENTITY)
            elif (items := outbox.next_items(to, self.entities[to].server, self.now_ns)) is not None:
                self.network.append(Brought(name, to, entity.server, outbox.echo(to), tuple(items)))

    @rule(name=st.sampled_from(NAMES), to=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2))
    def send_and_keep(self, name: str, to: list[str]) -> None:
        """As it goes most of the time: what is sent is copied and kept at once."""
        self.tick(name, to)
        self.copy(name)
        self.keep(name, -1)

    @rule(name=st.sampled_from(NAMES), later_s=st.sampled_from((0.0, 0.3, 5.0)))
    def bring_and_arrive(self, name: str, later_s: float) -> None:
        """As it goes most of the time: what is sent arrives, and is answered; all of it may come again."""
        before = len(self.network)
        self.bring(name, later_s)
        at = before
        while at < len(self.network):
            self.arrive(at, again=True)
            at += 1

    @rule()
    def all_goes_well(self) -> None:
        """For a while nothing fails, so that pairs are closed; what has arrived meanwhile may come again later."""
        for _ in range(4):
            for name in NAMES:
                self.bring_and_arrive(name, 5.0)
                at = len(self.network)
                self.send_and_keep(name, [])
                for which in range(at, len(self.network)):
                    self.arrive(which, again=True)

    @rule(which=st.integers(0, 400), again=st.booleans())
    def arrive(self, which: int, again: bool) -> None:
        """Anything that was ever sent arrives, in any order, and perhaps once more."""
        if not self.network:
            return
        at = which % len(self.network)
        one = self.network[at] if again else self.network.pop(at)
        if isinstance(one, Said):
            entity = self.entities[one.sender]
            entity.mail.outbox.answered(one.to, one.server, one.reply, self.now_ns)
            return
        receiver = self.entities.get(one.to)
        if receiver is None:
            return
        if one.closed is not None:
            receiver.mail.received.closed(one.sender, one.closed)
            return
        reply, _ = receiver.mail.received.offer(one.sender, one.items, one.echo, receiver.stamp, one.peer)
        self.network.append(Said(one.sender, one.to, receiver.server, reply))

    # --- what is promised ------------------------------------------------------------------------------------------

    @invariant()
    def what_one_has_had_is_the_beginning_of_what_the_other_has_sent(self) -> None:
        for receiver in self.entities.values():
            for sender, had in receiver.history.had.items():
                sent = self.entities[sender].history.sent.get(receiver.name, [])
                assert sent[: len(had)] == had, (sender, receiver.name, sent, had)

    @invariant()
    def a_refusal_is_told_once_and_of_what_was_sent(self) -> None:
        for entity in self.entities.values():
            history = entity.history
            assert history.sent_to_nobody[: len(history.refused)] == history.refused

    @invariant()
    def what_waits_is_counted(self) -> None:
        for entity in self.entities.values():
            mail = entity.mail
            assert entity.budget.used_bytes == mail.outbox.size_bytes + mail.received.size_bytes
            assert mail.outbox.size_bytes == sum(
                len(item.data) for sent in mail.outbox.out.values() for item in sent.items
            )

    def teardown(self) -> None:
        """Once nothing fails any more, everything arrives, whatever was lost on the way."""
        self.network.clear()
        for _ in range(14):
            for name in NAMES:
                self.bring(name, 5.0)
            while self.network:
                self.arrive(0, again=False)
            for name in NAMES:
                self.tick(name, [])
                self.copy(name)
                self.keep(name, -1)
            self.what_one_has_had_is_the_beginning_of_what_the_other_has_sent()
        for entity in self.entities.values():
            history = entity.history
            assert len(entity.mail.outbox) == 0
            assert history.refused == history.sent_to_nobody
            for to, sent in history.sent.items():
                assert self.entities[to].history.had.get(entity.name, []) == sent


class ForgetfulMails(Mails):
    """The same, where nobody keeps the cursor of a sender that has closed."""


@pytest.fixture(autouse=True)
def _forgets_at_once(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.cls is ForgetfulMails.TestCase:
        monkeypatch.setattr(received, "KEPT_SENDERS", 0)


TestMails = Mails.TestCase
TestMails.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
TestForgetfulMails = ForgetfulMails.TestCase
TestForgetfulMails.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
