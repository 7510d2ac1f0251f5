"""Brings what the entities of this server send to wherever its receivers are, and takes what others send to those here.

What may leave and what may be dropped is decided by the mail of each entity (`simserver.mail`). Here it is found out
where a receiver is, and things are said again until they are answered. Nothing of this outlives the server, and nothing
of it has to. What is in an outbox is sent again by the server that has the entity then.

A message waits for a copy of the tick that sent it. This is to take as long as a copy is on its way, and not a part of
the copy interval. So entities that have sent something are copied before their turn; of very many at once some wait for
theirs.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

import trio

from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.messages import (
    MAX_PAIRS,
    AuthorityWord,
    EntityMessageAnswers,
    EntityMessages,
    MessageAnswer,
    PairMessages,
    SentMessage,
)
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.mail_desk import stamp_of, take_items, take_refusal, take_reply
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.mail.items import MailItem, MailStamp, MailVerdict, PairReply
from batonpass.simserver.mail.outbox import NEVER
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.post.routes import EntityRoutes
from batonpass.simserver.world.messages import MessageNumber, MessageRefusal

__all__ = ["HURRIED", "MAX_FLUSH_BYTES", "CopyService", "PostOffice"]

HURRIED: Final = 64
"""Entities that are copied before their turn at a time; others have theirs for `_REST` times as long as that takes."""
_REST: Final = 4
MAX_FLUSH_BYTES: Final = 1024 * 1024
"""For one server at a time."""
_MESSAGE_BYTES: Final = 256 * 1024
_AGAIN_NS: Final = 20_000_000
_LOOK_AGAIN_NS: Final = 100_000_000
_NOT_FOUND_NS: Final = 250_000_000
_DOUBT_NS: Final = 1_000_000_000
_MAX_HELD: Final = 1024
_PROMPTED: Final = 8


class CopyService(Protocol):
    """What makes copies; see `simserver.durability.replication`."""

    @property
    def copies(self) -> bool:
        """Whether only what is in a copy is durable."""

    async def copy_now(self, due: Sequence[Holding]) -> None:
        """Copy these before their turn."""

    def tell_of_durable(self, durable: Callable[[str, Fence, int], None]) -> None:
        """Have this told of the ticks of entities that are durable."""


class PostOffice:
    """Of one server; `serve` has to run."""

    def __init__(
        self,
        ports: SimserverPorts,
        environment: EntityEnvironment,
        holdings: Holdings,
        copies: CopyService,
    ) -> None:
        self._name: Final = ports.name
        self._outbox: Final = ports.outbox
        self._clock: Final = ports.clock
        self._env: Final = environment
        self._holdings: Final = holdings
        self._copies: Final = copies
        self.routes: Final = EntityRoutes(ports.home, ports.clock, environment.count)
        self._bell: Final = ports.clock.bell()
        self._copy_bell: Final = ports.clock.bell()
        self._ready: dict[str, None] = {}
        self._hurried: Final[dict[str, None]] = {}
        self._due: Final[dict[str, int]] = {}
        self._heap: Final[list[tuple[int, str]]] = []
        self._pairs: Final[dict[str, list[PairMessages]]] = defaultdict(list)
        self._pair_bytes: Final[dict[str, int]] = defaultdict(int)
        self._answers: Final[dict[str, list[MessageAnswer]]] = defaultdict(list)
        self._wanted_by: Final[dict[str, dict[str, None]]] = {}
        self._held = 0
        self._prompting: Final[set[str]] = set()
        environment.mail.listen(self._changed, self._said_durable, lambda: copies.copies)
        environment.feed.listen("messages", {EntityChange.BEGUN}, self._begun)
        copies.tell_of_durable(self._durable)

    # --- what happens ----------------------------------------------------------------------------------------------

    def _mail_of(self, entity: str) -> tuple[Life, EntityMail] | None:
        holding = self._holdings.get(entity)
        if holding is None or holding.life.mail is None:
            return None
        return holding.life, holding.life.mail

    def _look_at(self, entity: str) -> None:
        self._ready[entity] = None
        self._bell.ring()

    def _begun(self, entity: str) -> None:
        # It is in the table of entities only a moment later.
        self._look_at(entity)

    def _changed(self, entity: str) -> None:
        if self._copies.copies:
            self._hurried[entity] = None
            self._copy_bell.ring()
        else:
            self._look_at(entity)

    def _durable(self, entity: str, fence: Fence, tick: int) -> None:
        found = self._mail_of(entity)
        if found is None or found[0].fence != fence:
            return
        self._said_durable(entity, found[1].made_durable(tick))

    def _said_durable(self, entity: str, senders: Sequence[str]) -> None:
        """What was sent by then may leave, and what was applied by then is said to its senders."""
        found = self._mail_of(entity)
        if found is None:
            return
        life, mail = found
        self._answer_durable(life, mail, senders)
        if unclosed := mail.received.unclosed(_PROMPTED):
            self._prompt(life.id, unclosed)
        self._look_at(entity)

    def _answer_durable(self, life: Life, mail: EntityMail, senders: Sequence[str]) -> None:
        for sender in senders:
            if (known := mail.received.reply_to(sender, stamp_of(life))) is not None:
                self._answer(sender, life.id, *known)

    # --- serving ---------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry messages until cancelled."""
        async with self._clock.tasks() as tasks:
            self.routes.begin(tasks)
            self._wanted_by.clear()
            self._prompting.clear()
            self._held = 0
            self._ready.update((holding.id, None) for holding in self._holdings if holding.life.mail is not None)
            tasks.start_soon(self._copy_hurried)
            task_status.started()
            while True:
                self._bring(self._clock.monotonic_ns())
                await self._bell.wait(self._until_next_s())

    def _until_next_s(self) -> float:
        if self._ready:
            return 0.0
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        if not self._heap:
            return float("inf")
        return max(0, self._heap[0][0] - self._clock.monotonic_ns()) / 1e9

    async def _copy_hurried(self) -> None:
        while True:
            await self._copy_bell.wait()
            while self._hurried:
                together = [name for name, _ in zip(list(self._hurried), range(HURRIED), strict=False)]
                for name in together:
                    del self._hurried[name]
                found = (self._holdings.get(name) for name in together)
                due = [one for one in found if one is not None and _is_unsent(one.life)]
                began_ns = self._clock.monotonic_ns()
                await self._copies.copy_now(due)
                await self._clock.sleep_s(_REST * (self._clock.monotonic_ns() - began_ns) / 1e9)

    def _bring(self, now_ns: int) -> None:
        """Say all that is due."""
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, entity = heappop(self._heap)
            if self._due.get(entity) == due_ns:
                del self._due[entity]
                self._ready[entity] = None
        ready, self._ready = self._ready, {}
        if ready and not self._env.may_act(now_ns):
            # Another server may have them by now. If not, they are looked at again.
            for entity in ready:
                self._later(entity, now_ns + _LOOK_AGAIN_NS)
            return
        for entity in ready:
            found = self._mail_of(entity)
            if found is not None:
                self._bring_of(*found, now_ns)
        self._flush()

    def _later(self, entity: str, due_ns: int) -> None:
        if self._due.get(entity, NEVER) > due_ns:
            self._due[entity] = due_ns
            heappush(self._heap, (due_ns, entity))

    def _bring_of(self, life: Life, mail: EntityMail, now_ns: int) -> None:
        """Say what is due of one entity."""
        if mail.has_news:
            self._env.mail.news[life.id] = None
        outbox = mail.outbox
        if life.frozen:
            # It leaves, or is resumed.
            self._later(life.id, now_ns + _LOOK_AGAIN_NS)
            return
        if not self._copies.copies:
            self._answer_durable(life, mail, mail.made_durable(life.tick))
        elif outbox.is_unsent:
            self._hurried[life.id] = None
            self._copy_bell.ring()
        for to in outbox.receivers():
            if (closing := outbox.closing(to)) is not None:
                self._close(life.id, to, *closing)
            else:
                self._bring_to(life, mail, to, now_ns)
        if (due_ns := outbox.due_at_ns()) < NEVER:
            self._later(life.id, max(due_ns, now_ns + _AGAIN_NS))

    def _bring_to(self, life: Life, mail: EntityMail, to: str, now_ns: int) -> None:
        server = self._server_of(to)
        if not server:
            if mail.outbox.is_due(to, now_ns):
                self._find(life, mail, to, now_ns)
            return
        if mail.outbox.is_unanswered(to) and server != self._name and self.routes.age_ns(to) > _DOUBT_NS:
            self._find(life, mail, to, now_ns, put_off=False)
        if server == self._name:
            self._bring_here(life, mail, to, now_ns)
            return
        if self._pair_bytes[server] > MAX_FLUSH_BYTES:
            self._later(life.id, now_ns + _AGAIN_NS)
            return
        items = mail.outbox.next_items(to, server, now_ns)
        if items is None:
            return
        sent = [SentMessage(number=item.number, after=item.after, data=item.data) for item in items]
        self._pairs[server].append(PairMessages(sender=life.id, to=to, echo=mail.outbox.echo(to), items=sent))
        self._pair_bytes[server] += 64 + sum(len(item.data) + 32 for item in items)

    def _bring_here(self, life: Life, mail: EntityMail, to: str, now_ns: int) -> None:
        """To another entity of this server, or to itself."""
        # Asked once for its stamp, it is not asked again.
        for _ in range(2):
            items = mail.outbox.next_items(to, self._name, now_ns)
            if items is None:
                return
            answer = self._offered(life.id, to, items, mail.outbox.echo(to), self._name)
            if answer is None:
                return
            if answer.verdict is MailVerdict.NOT_TAKEN:
                self._refused(life, to, MessageRefusal.NOT_TAKEN)
                return
            take_reply(life, to, self._name, answer, now_ns)
            if answer.verdict is not MailVerdict.ASKED:
                return

    def _close(self, sender: str, to: str, server: str, upto: MessageNumber) -> None:
        """Tell a receiver that nothing up to this number comes again."""
        if (found := self._mail_of(to)) is not None:
            found[1].received.closed(sender, upto)
        elif server and server != self._name:
            self._pairs[server].append(PairMessages(sender=sender, to=to, closed=upto, items=[]))

    # --- where receivers are ---------------------------------------------------------------------------------------

    def _server_of(self, entity: str) -> str:
        if self._holdings.get(entity) is not None:
            return self._name
        server = self.routes.to(entity)
        if server == self._name:
            # It comes, or has gone and home does not know: the word of where it went is this server's own.
            gone = self._holdings.gone(entity)
            self.routes.moved(entity, server, "" if gone is None else gone.moved_to)
            server = self.routes.to(entity)
        return server

    def _find(self, life: Life, mail: EntityMail, to: str, now_ns: int, *, put_off: bool = True) -> None:
        """Have home asked where a receiver is; until it answers, nothing is sent there."""
        if put_off:
            mail.outbox.put_off(to, now_ns + _NOT_FOUND_NS)
        wanted = self._wanted_by.get(to)
        if wanted is not None:
            wanted[life.id] = None
            return

        def told(word: AuthorityWord | None) -> None:
            senders = self._wanted_by.pop(to, {})
            for sender in senders:
                self._told_where(sender, to, word)

        self._wanted_by[to] = {life.id: None}
        if not self.routes.ask(to, told):
            del self._wanted_by[to]

    def _told_where(self, sender: str, to: str, word: AuthorityWord | None) -> None:
        found = self._mail_of(sender)
        if found is None or word is None:
            return
        life, mail = found
        if word.standing == "known":
            if word.server and (word.server != self._name or self._holdings.get(to) is not None):
                mail.outbox.hurry(to)
                self._look_at(sender)
            return
        self.routes.forget(to)
        was_deleted = word.standing == "deleted"
        self._refused(life, to, MessageRefusal.DELETED if was_deleted else MessageRefusal.NO_SUCH_ENTITY)

    def _refused(self, life: Life, to: str, reason: MessageRefusal) -> None:
        for _ in range(take_refusal(life, to, reason, self._env.mail)):
            self._env.count(f"message_refused_{reason}")

    # --- what comes ------------------------------------------------------------------------------------------------

    def came(self, message: EntityMessages, peer: str) -> None:
        """Another server brings what its entities send to those here; at once, or when home says that it has those."""
        doubtful: dict[str, list[PairMessages]] = {}
        for pair in message.pairs:
            if self._holdings.get(pair.sender) is not None:
                # It is here by now, and is sent from here.
                self._env.count("messages_unproved")
            elif self.routes.is_proved(pair.sender, peer):
                self._take_pair(pair, peer)
            else:
                doubtful.setdefault(pair.sender, []).append(pair)
        for sender, pairs in doubtful.items():
            self._prove(sender, pairs, peer)
        self._flush()

    def _prove(self, sender: str, pairs: list[PairMessages], peer: str) -> None:
        """Take what a server says in the name of an entity if home says that it has that one."""
        if self._held >= _MAX_HELD:
            self._env.count("messages_unproved")
            return

        def told(word: AuthorityWord | None) -> None:
            self._held -= 1
            if word is None or word.server != peer:
                # It may have just been passed on, and home has not heard: it is said again.
                self._env.count("messages_unproved")
                return
            for pair in pairs:
                self._take_pair(pair, peer)
            self._flush()

        if self.routes.ask(sender, told):
            self._held += 1

    def _take_pair(self, pair: PairMessages, peer: str) -> None:
        found = self._mail_of(pair.to)
        if pair.closed > (0, 0):
            if found is not None:
                found[1].received.closed(pair.sender, pair.closed)
            return
        if self._holdings.get(pair.to) is None:
            gone = self._holdings.gone(pair.to)
            moved_to = "" if gone is None else gone.moved_to
            self._answers[peer].append(
                MessageAnswer(sender=pair.sender, to=pair.to, verdict="elsewhere", moved_to=moved_to)
            )
            return
        items = [MailItem(item.number, item.after, item.data) for item in pair.items]
        reply = self._offered(pair.sender, pair.to, items, pair.echo, peer)
        if reply is not None:
            self._answer(pair.sender, pair.to, peer, reply)

    def _offered(self, sender: str, to: str, items: Sequence[MailItem], echo: MailStamp, peer: str) -> PairReply | None:
        """What an entity here says to messages that were brought to it; None for nothing at this moment."""
        holding = self._holdings.get(to)
        if holding is None or not self._env.may_act(self._clock.monotonic_ns()):
            return None
        if not self._env.takes_messages:
            return PairReply(MailVerdict.NOT_TAKEN, (0, 0), (0, 0), stamp_of(holding.life))
        reply = take_items(holding.life, sender, items, echo, peer, self._env.mail)
        if reply is not None and reply.verdict is MailVerdict.FULL:
            self._env.count("messages_held_back")
        return reply

    # --- answers ---------------------------------------------------------------------------------------------------

    def _answer(self, sender: str, to: str, peer: str, reply: PairReply) -> None:
        if peer == self._name:
            if (found := self._mail_of(sender)) is not None:
                take_reply(found[0], to, peer, reply, self._clock.monotonic_ns())
                self._look_at(sender)
            return
        if peer:
            self._answers[peer].append(_answer_of(sender, to, reply))
            self._bell.ring()

    def answered(self, message: EntityMessageAnswers, peer: str) -> None:
        """Another server says how far it has what entities of this one have sent."""
        now_ns = self._clock.monotonic_ns()
        for answer in message.answers:
            if (found := self._mail_of(answer.sender)) is not None:
                self._take_answer(*found, answer, peer, now_ns)
                self._look_at(answer.sender)

    def _take_answer(self, life: Life, mail: EntityMail, answer: MessageAnswer, peer: str, now_ns: int) -> None:
        outbox, to = mail.outbox, answer.to
        if to not in outbox.out:
            # It asks whether anything is still to come.
            if (
                answer.verdict == "taken"
                and outbox.has_closed(to)
                and answer.accepted <= (life.fence.epoch, outbox.last)
            ):
                self._close(life.id, to, peer, answer.accepted)
        elif answer.verdict == "elsewhere":
            if outbox.was_asked(to, peer):
                is_followed = self.routes.moved(to, peer, answer.moved_to)
                outbox.put_off(to, now_ns if is_followed else now_ns + _LOOK_AGAIN_NS)
        elif answer.verdict == "not_taken":
            if outbox.was_asked(to, peer):
                self._refused(life, to, MessageRefusal.NOT_TAKEN)
        else:
            reply = PairReply(MailVerdict(answer.verdict), answer.accepted, answer.durable, answer.at)
            take_reply(life, to, peer, reply, now_ns)

    def _prompt(self, entity: str, senders: Sequence[str]) -> None:
        """Ask senders that have been silent for long whether they have closed, as room for others is short."""
        if entity in self._prompting:
            return
        left = [len(senders)]

        def told(sender: str, word: AuthorityWord | None) -> None:
            left[0] -= 1
            if not left[0]:
                self._prompting.discard(entity)
            found = self._mail_of(entity)
            if found is None or word is None:
                return
            life, mail = found
            known = mail.received.reply_to(sender, stamp_of(life))
            if known is None:
                return
            if word.standing != "known":
                # Nothing of it can come again.
                mail.received.closed(sender, known[1].accepted)
            elif word.server == self._name:
                self._closed_here(sender, entity, mail, known[1].accepted)
            elif word.server:
                self._answers[word.server].append(_answer_of(sender, entity, known[1]))
                self._bell.ring()

        self._prompting.add(entity)
        for sender in senders:

            def heard(word: AuthorityWord | None, sender: str = sender) -> None:
                told(sender, word)

            if not self.routes.ask(sender, heard):
                heard(None)

    def _closed_here(self, sender: str, to: str, mail: EntityMail, upto: MessageNumber) -> None:
        found = self._mail_of(sender)
        if found is not None and found[1].outbox.has_closed(to):
            mail.received.closed(sender, upto)

    # --- sending ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what was gathered, to each server in as few messages as it may be."""
        for server, pairs in self._pairs.items():
            for together in _in_messages(pairs):
                self._env.count("messages_sent_on")
                message = EntityMessages(pairs=together)
                self._outbox.send(message, Trace("entity-messages"), server, on_path=False)
        self._pairs.clear()
        self._pair_bytes.clear()
        for server, answers in self._answers.items():
            for start in range(0, len(answers), MAX_PAIRS):
                said = EntityMessageAnswers(answers=answers[start : start + MAX_PAIRS])
                self._outbox.send(said, Trace("entity-messages"), server, on_path=False)
        self._answers.clear()


def _is_unsent(life: Life) -> bool:
    return life.mail is not None and life.mail.outbox.is_unsent and not (life.frozen or life.over)


def _answer_of(sender: str, to: str, reply: PairReply) -> MessageAnswer:
    return MessageAnswer(
        sender=sender,
        to=to,
        verdict=reply.verdict.value,
        accepted=reply.accepted,
        durable=reply.durable,
        at=reply.at,
    )


def _in_messages(pairs: Sequence[PairMessages]) -> list[list[PairMessages]]:
    """In as few lists as it may be, each within `_MESSAGE_BYTES` and `MAX_PAIRS`."""
    lists: list[list[PairMessages]] = []
    size_bytes = 0
    for pair in pairs:
        its_bytes = sum(len(item.data) for item in pair.items)
        if not lists or size_bytes + its_bytes > _MESSAGE_BYTES or len(lists[-1]) >= MAX_PAIRS:
            lists.append([])
            size_bytes = 0
        lists[-1].append(pair)
        size_bytes += its_bytes
    return lists
