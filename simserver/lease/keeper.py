"""This server's lease: renewed through its home instance, and asked about before anything is simulated.

`authority.machines.lease` has the rules. Everything that simulates asks `may_act` at the moment of the deed. No timer
has to be on time. A server that was paused for a minute finds, with its first look at the clock, that it may not
simulate.

A lease that has run out may be granted again as long as the home instance has not ended it. Then everything continues
as it stands. One that was ended is not: the server gives up whatever it simulated and claims the next incarnation.

A home instance whose log went back (`simserver.lease.log_watermark`) grants nothing, and is not followed. What lives
here is unleased and kept, newer than anything that log knows, until the home instance has the log that it had. If this
server has followed the one that went back, it is asked first what of all that is its own (`find_way_back`), and the
rest is gone.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.authority.errors import MessageError
from batonpass.authority.machines.lease import Holder, HolderPhase, LeaseTerms, Over, RanOut, Renewed
from batonpass.authority.machines.replica_choice import may_follow
from batonpass.authority.names import instance_of
from batonpass.authority.protocol_version import PROTOCOL_VERSION, why_other_release
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew, RenewReply, digest_of, number_of
from batonpass.authority.wire.queries import place_said_untrusted
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.tree.disk.disk import DiskFailed, replace_file

__all__ = ["LeaseKeeper", "Nonces"]

_log = logging.getLogger("batonpass.simserver.lease.keeper")

RETRY_S: Final = 0.2
# Between two renewals, however often tasks want to know more.
SOONEST_NS: Final = 50_000_000
# A home instance that has not renewed the lease after that does not answer. It takes milliseconds.
LATE_NS: Final = 1_000_000_000
MAX_WHY_CHARS: Final = 300
# Of incarnations that were begun; not all of them were granted.
_NONCES_KEPT: Final = 8
# Until the first answer says how long the term is.
_FIRST_RENEWAL_S: Final = 0.5


def _why_not(reply: RenewReply, server: str) -> str:
    """Why a lease was not granted, as the end of a sentence that begins with which homeserver says so."""
    match reply.verdict:
        case "held":
            return f"another process has the lease of {server} (incarnation {reply.known}) until it is over"
        case "over":
            return f"the lease of this incarnation of {server} is over; the last one is {reply.known}"
        case "elsewhere" if reply.officer:
            return f"{reply.officer} grants leases now"
        case "elsewhere":
            return "another homeserver grants leases now, and it is not known yet which"
        case verdict:
            return f"the lease of {server} is {verdict}"


class Nonces:
    """The secrets of the last incarnations, in a file in a directory that one process at a time can have."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def new_nonce(self) -> str:
        """A secret for another one."""
        return secrets.token_hex(16)

    def read(self) -> dict[int, str]:
        """By incarnation, as far as they are written down."""
        try:
            return {int(number): str(nonce) for number, nonce in json.loads(self._file.read_bytes()).items()}
        except FileNotFoundError:
            return {}

    def write(self, nonces: dict[int, str]) -> None:
        """Durable when this returns."""
        replace_file(self._file, json.dumps({str(number): nonce for number, nonce in nonces.items()}).encode())


@dataclass(frozen=True, kw_only=True)
class _Simulated:
    """What is done with all that is simulated under the lease; see `LeaseKeeper.bind`."""

    stepped_down: Callable[[], None]
    find_way_back: Callable[[str], Awaitable[bool]]
    has_shared: Callable[[], bool]
    home_is_back: Callable[[], None]


class LeaseKeeper:
    """Renews this server's lease while it is served. Everything that simulates is built after it, and then bound to it.

    Args:
        nonces: what is kept of incarnations.
        home_log: what is known of the home instance's log.
    """

    def __init__(self, ports: SimserverPorts, nonces: Nonces, log_watermark: LogWatermark) -> None:
        clock = ports.clock
        self._server = ports.name
        self._nonces = nonces
        self._home = ports.home
        self._renew = ports.renew
        self._clock = clock
        self._counts = ports.counts
        self._log_watermark = log_watermark
        self._simulated: _Simulated | None = None
        # Says where this server is; it is nowhere before it is registered.
        self._where: Callable[[], tuple[str, str, int]] | None = None
        self._nonce = ""
        self._previous_nonce = ""
        self._renewal = 0
        self._peers_digest = ""
        self._challenge = ""
        self._begun = clock.bell()
        self._wanted = clock.bell()
        self._waiting: list[Callable[[], None]] = []
        self.holder = Holder()
        self.why_not = ""
        """Why the lease was not renewed, the last time that it was not."""
        self.log_went_back = ""
        """Why this server does not follow its home instance, whose log is older than it was; empty if it does."""
        self.other_release = ""
        """Why the home instance would not understand this server, with both versions; empty if it does."""
        self.is_alive = False
        """Whether the home instance gives entities to this server."""
        # Whether the lease was granted when home was last asked to, and since when it is being asked now, if it is.
        self._was_renewed = True
        self._asked_ns: int | None = None
        self.is_drained = False
        """Whether this server is drained, so that it takes no entities."""
        self.is_alone = False
        """Whether this server's own disk counts, so that what is written there is durable (`single_survivor`)."""
        self._says_shared = False
        self.peers: tuple[str, ...] = ()
        """The servers of this instance that are alive, as far as they are known; this one among them."""
        self.aside: frozenset[str] = frozenset()
        """Those of them that are drained."""
        self.may_follow: tuple[str, ...] = ()
        """Those of them that are sent copies, each for what is its to keep; this one among them, unless drained."""

    @property
    def may_be_waited_for(self) -> bool:
        """Whether home may wait for the disk of this server if that dies: until it has answered that others share."""
        return self.is_alone or self._says_shared

    @property
    def knows(self) -> int:
        """What it was told of the others, as a number (`authority.wire.lease.number_of`)."""
        return number_of(self._peers_digest)

    @property
    def incarnation(self) -> int:
        """Of the lease that is held, or was last; 0 before the first."""
        return self.holder.incarnation

    @property
    def told_incarnation(self) -> int | None:
        """The incarnation on which others may rely; None while it was never granted.

        A number that the log has not seen may still become that of another process.
        """
        is_granted = self.holder.until_ns and self.holder.phase is not HolderPhase.OVER
        return self.holder.incarnation if is_granted else None

    def may_act(self, now_ns: int) -> bool:
        """Whether anything may be simulated at this moment."""
        return not self.log_went_back and self.holder.may_act(now_ns)

    def is_lost_by(self, began_ns: int, done_ns: int) -> bool:
        """Whether what kept this server busy from then until then has cost it the lease, which it had before.

        Work shorter than the time between two renewals has not: one was due before it, and was not granted.
        """
        terms = self.holder.terms
        if terms is None or done_ns - began_ns < terms.renew_every_ns:
            return False
        return self.may_act(began_ns) and not self.may_act(done_ns)

    def why_not_asked(self) -> str:
        """Why the home instance is asked for nothing but the lease; empty if it is.

        Without one nothing is simulated here, so nothing is urgent; and what keeps home from granting it may be that it
        is asked too much.
        """
        if self.log_went_back or self.holder.may_act(self._clock.monotonic_ns()):
            return self.log_went_back
        return f"{self._server} has no lease now, and asks for nothing else until it has"

    def why_unleased(self, now_ns: int) -> str:
        """Why nothing may be simulated at this moment; empty if it may."""
        if self.may_act(now_ns):
            return ""
        return self.log_went_back or f"it was not renewed: {self.why_not or 'its home instance was not asked yet'}"

    def home_answers(self, now_ns: int) -> bool:
        """Whether the home instance granted the lease when it was last asked to, or has not had long to do so.

        To hear that members hang, instead of being dead, takes as long as the lease itself, or longer.
        """
        is_late = self._asked_ns is not None and now_ns - self._asked_ns > LATE_NS
        return self._was_renewed and not is_late

    def heard_log(self, sender: str, log: str) -> None:
        """A homeserver of this instance says where the log stands: wherever it is asked from now on, it has been there.

        The word of other servers does not count.
        """
        place = LogPlace.read(log)
        if place is not None and self._home.is_member(sender) and not self.log_went_back:
            self._log_watermark.heard(place)

    def shown_abroad(self, sender: str, token: str) -> None:
        """A homeserver has signed, and says so itself, where the log of its instance stands; kept for the others.

        Raises:
            MessageError: that is not what it has signed.
        """
        if instance_of(sender) == instance_of(self._server):
            return
        instance, place = place_said_untrusted(token)
        if instance != instance_of(sender):
            raise MessageError(f"{sender} says where the log of {instance} stands")
        self._log_watermark.shown_abroad(instance, place, token)

    def bind(
        self,
        *,
        stepped_down: Callable[[], None],
        find_way_back: Callable[[str], Awaitable[bool]],
        has_shared: Callable[[], bool],
        home_is_back: Callable[[], None],
    ) -> None:
        """Be the lease of a server that does this. Once; before it no lease is asked for, so nothing may act.

        Args:
            stepped_down: called when the lease is over and before another incarnation is claimed: from then on nothing
                of what was simulated may continue.
            find_way_back: asked before a home is followed whose log may be another than that of a position; see
                `LogRollback`.
            has_shared: whether nothing is durable by its own disk alone any more; see `Replication.has_shared`.
            home_is_back: told of the first renewal that is granted after one that was not.

        Raises:
            RuntimeError: it was bound before.
        """
        if self._simulated is not None:
            raise RuntimeError(f"the lease of {self._server} is bound already")
        self._simulated = _Simulated(
            stepped_down=stepped_down, find_way_back=find_way_back, has_shared=has_shared, home_is_back=home_is_back
        )

    def _bound(self) -> _Simulated:
        if self._simulated is None:
            raise RuntimeError(f"the lease of {self._server} is bound to nothing that could give up what it simulates")
        return self._simulated

    def begin(self, where: Callable[[], tuple[str, str, int]]) -> None:
        """This server is registered, so it may ask for a lease.

        `where` says where it is: its REST, and host and port of its link; 0 while that is not known.
        """
        self._where = where
        self._begun.ring()

    def once_renewed(self, then: Callable[[], None]) -> None:
        """Renew soon, and call this when a renewal was granted that was sent after this: what it said is no older.

        The caller bounds how many are waiting.
        """
        self._waiting.append(then)
        self._wanted.ring()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew the lease, or claim a new one, until cancelled.

        Raises:
            RuntimeError: it is bound to nothing.
        """
        self._bound()
        task_status.started()
        if self._where is None:
            await self._begun.wait()
        while True:
            if self.holder.phase is HolderPhase.OVER or not self.holder.incarnation:
                self._next_incarnation()
            sent_ns = self._clock.monotonic_ns()
            wanted = len(self._waiting)
            granted = await self._asked(sent_ns)
            if granted:
                waiting, self._waiting = self._waiting[:wanted], self._waiting[wanted:]
                for then in waiting:
                    try:
                        then()
                    except Exception:
                        # It must not take the lease, and with it all that is simulated here, with it.
                        _log.exception("a task that waited for a renewal ran into an error of ours")
            if granted and self.is_alive:
                await self._until_due(sent_ns)
            else:
                await self._clock.sleep_s(RETRY_S)

    def to_data(self) -> dict[str, Any]:
        """How it stands, for people."""
        left_ms = max(self.holder.until_ns - self._clock.monotonic_ns(), 0) // 1_000_000
        return {
            "incarnation": self.holder.incarnation,
            "phase": self.holder.phase.value,
            "log_went_back": self.log_went_back,
            "may_be_given_entities": self.is_alive,
            "left_ms": left_ms if self.holder.phase is HolderPhase.HELD else 0,
        }

    # --- incarnations ----------------------------------------------------------------------------------------------

    def _next_incarnation(self) -> None:
        """Drop what there is under the last incarnation, and begin another."""
        if self.holder.incarnation:
            self._bound().stepped_down()
        self._begin_as(max([self.holder.incarnation, *self._nonces.read()]) + 1)

    def _begin_as(self, incarnation: int) -> None:
        """Be this incarnation from now on; written down before it is told.

        By the nonce of the last one, which only stands here and in the log, the next process in this directory proves
        that it comes after it. It need not wait until its lease is over.
        """
        known = self._nonces.read()
        self._previous_nonce = known.get(incarnation - 1, "")
        self._nonce, self._renewal = self._nonces.new_nonce(), 0
        self.is_alive = self.is_alone = self._says_shared = False
        self.holder = Holder(incarnation)
        kept = sorted(number for number in known if number < incarnation)[-_NONCES_KEPT:]
        self._nonces.write({number: known[number] for number in kept} | {incarnation: self._nonce})

    # --- renewing --------------------------------------------------------------------------------------------------

    async def _until_due(self, sent_ns: int) -> None:
        """Wait until the lease is to be renewed, or a task wants to know what home says now."""
        left_ns = sent_ns + self._every_ns() - self._clock.monotonic_ns()
        if await self._wanted.wait(max(left_ns / 1e9, 0.01)):
            left_ns = sent_ns + SOONEST_NS - self._clock.monotonic_ns()
            if left_ns > 0:
                await self._clock.sleep_s(left_ns / 1e9)

    def _every_ns(self) -> int:
        terms = self.holder.terms
        return round(_FIRST_RENEWAL_S * 1e9) if terms is None else terms.renew_every_ns

    async def _asked(self, sent_ns: int) -> bool:
        """As `_renewed`; tasks that wait for the outcome hear when it takes long."""
        self._asked_ns = sent_ns
        try:
            return await self._renewed(sent_ns)
        finally:
            self._asked_ns = None

    async def _renewed(self, sent_ns: int) -> bool:
        """Ask, and once more if a homeserver has to see first that this is no recording; whether it was granted."""
        granted = await self._renewed_if_new(sent_ns)
        if granted is None:
            self._asked_ns = sent_ns = self._clock.monotonic_ns()
            granted = await self._renewed_if_new(sent_ns)
        if granted is None:
            self._not_granted("homeservers give other challenges than are repeated to them")
        return bool(granted)

    async def _renewed_if_new(self, sent_ns: int) -> bool | None:
        """Ask once; None if it is to be asked again."""
        self._renewal += 1
        if self.is_alone and self._bound().has_shared():
            # From here on its disk does not count, until the log has answered this and decided otherwise.
            self.is_alone, self._says_shared = False, True
        rest_url, link_host, link_port = ("", "", 0) if self._where is None else self._where()
        message = Renew(
            server=self._server,
            incarnation=self.incarnation,
            nonce=self._nonce,
            previous_nonce=self._previous_nonce,
            renewal=self._renewal,
            peers=self._peers_digest,
            shared=self._says_shared,
            position=self._log_watermark.position,
            heard=self._log_watermark.places,
            witnesses=self._log_watermark.witnesses,
            members=self._home.members_digest,
            challenge=self._challenge,
            rest_url=rest_url,
            link_host=link_host,
            link_port=link_port,
            protocol=PROTOCOL_VERSION,
        )
        trace = Trace(f"renew-{hashlib.sha256(self._nonce.encode()).hexdigest()[:16]}-{self._renewal}")
        try:
            answer = await self._renew(message, trace)
        except (HomeUnreachable, HomeRefused) as error:
            self._not_granted(str(error))
            return False
        # By its trace it answers this very message, whenever it was sealed.
        is_new = answer is not None and answer.trace.transfer_id == trace.transfer_id
        if answer is None or not is_new or not isinstance(answer.message, RenewReply):
            self._not_granted("the answer is none to this renewal")
            return False
        self._challenge = answer.message.challenge or ""
        self._clock.told(answer.message.now_ms, sent_ns)
        if answer.message.verdict == "again":
            return None
        if not await self._take(answer.message, answer.sender, sent_ns):
            return False
        self._log_watermark.confirmed(message.heard)
        return True

    async def _take(self, reply: RenewReply, sender: str, sent_ns: int) -> bool:
        now_ns = self._clock.monotonic_ns()
        if reply.verdict == "went_back":
            self._home_went_back(sender)
            self._log_watermark.went_back(reply.missing, position_known=reply.position_known)
            return False
        if reply.verdict == "other_release":
            self._home_has_another_release(sender, reply.protocol)
            return False
        if reply.verdict in ("granted", "returning"):
            self.other_release = ""
            if reply.lost:
                self._log_watermark.doubt()
            if self._log_watermark.doubtful and not await self._is_the_way_found(sender):
                return False
            self._home_is_back(reply.position)
            before, is_back, self._was_renewed = self.holder.phase, not self._was_renewed, True
            self.holder.handle(Renewed(sent_ns, LeaseTerms(reply.term_ms * 1_000_000)), now_ns)
            if before is HolderPhase.LAPSED:
                _log.warning("%s has its lease again (incarnation %d)", self._server, self.incarnation)
            self.is_alive = reply.verdict == "granted"
            self.is_drained, self.is_alone, self._says_shared = reply.draining, reply.alone, False
            if reply.peers is not None:
                self._learn_peers(reply.peers, reply.aside)
            if reply.members_changed:
                self._home.members_changed()
            if is_back:
                self._bound().home_is_back()
            return True
        if reply.verdict == "over":
            self._is_over(reply.known, now_ns)
        elif reply.verdict == "elsewhere":
            # The named officer may be gone, while the sender has not heard yet of the next one.
            await self._home.prefer(reply.officer, to=sender)
        self._not_granted(f"{sender} says that {_why_not(reply, self._server)}")
        return False

    def _home_has_another_release(self, sender: str, version: int) -> None:
        """Its homeservers were exchanged while this server ran: without a lease it simulates nothing, and keeps all."""
        why = why_other_release(self._server, PROTOCOL_VERSION, sender, version)
        if why != self.other_release:
            _log.error("other_release: %s", why)
        self.other_release, self.is_alive = why, False
        self._not_granted(why)

    def _home_went_back(self, sender: str) -> None:
        """The home instance has an older log than this server can prove: nothing of what it says is followed."""
        if not self.log_went_back:
            self._counts["log_went_back"] += 1
            self.log_went_back = (
                f"{sender} has an older log than its instance had before, restored from a copy perhaps: it would give "
                f"fences and incarnations again that were given already. Restore the newer log "
                f"(docs/reference/operations.md, restoring a homeserver)"
            )
            _log.error("log_went_back: %s is unleased: %s", self._server, self.log_went_back)
        self.is_alive = False
        self._not_granted(self.log_went_back)

    async def _is_the_way_found(self, sender: str) -> bool:
        """Whether this server can continue as it is: it has followed no other log than this home's.

        Else what was given to it by another one is gone now, and it is another incarnation from here on.
        """
        position = self._log_watermark.doubtful
        if not self.log_went_back:
            # From a process of before, or accepted by an operator: nothing is done meanwhile that others would see.
            self.log_went_back = f"it has followed a log that went back, and asks {sender} what is its own"
        try:
            is_astray = await self._bound().find_way_back(position)
        except (HomeUnreachable, HomeRefused, DiskFailed) as error:
            self._not_granted(f"{self.log_went_back} ({error})")
            return False
        if self._log_watermark.doubtful == position:
            self._log_watermark.doubtful = ""
        if not is_astray:
            return True
        self._counts["came_back_astray"] += 1
        _log.warning("%s gave up what a log had given to it that its home instance has taken back", self._server)
        self.log_went_back = ""
        self._begin_as(max([self.holder.incarnation, *self._nonces.read()]) + 1)
        return False

    def _home_is_back(self, position: str | None) -> None:
        """The home instance has granted the lease, so its log has been where this server knows it to have been."""
        if self.log_went_back:
            _log.warning("%s follows its home instance again: the log is the one that it knows", self._server)
            self.log_went_back = ""
        if position:
            self._log_watermark.position = position

    def _is_over(self, known: int, now_ns: int) -> None:
        """The log has ended this incarnation, or knows another one."""
        was_held = self.holder.until_ns != 0
        self.holder.handle(Over(), now_ns)
        self.is_alive = False
        if was_held:
            self._counts["lease_over"] += 1
            _log.error("the lease of %s (incarnation %d) is over: it gives up", self._server, self.incarnation)
        else:
            # Nothing was simulated under it: the log's number was another one, or the word that it holds was lost.
            # Entities given to this incarnation meanwhile are unleased, and are not the next one's.
            self._bound().stepped_down()
            self._begin_as(known + 1)

    def _not_granted(self, why: str) -> None:
        """Nothing was granted this time; the lease term runs out further."""
        self.why_not, self._was_renewed = why[:MAX_WHY_CHARS], False
        before = self.holder.phase
        after = self.holder.handle(RanOut(), self._clock.monotonic_ns())
        if before is HolderPhase.HELD and after is HolderPhase.LAPSED:
            self._counts["lease_lapsed"] += 1
            _log.warning(
                "the lease of %s has run out: nothing is simulated until it is renewed (%s)", self._server, why
            )
        else:
            _log.info("the lease of %s was not renewed: %s", self._server, why)

    def _learn_peers(self, peers: list[str], aside: list[str]) -> None:
        self.peers, self.aside = tuple(peers), frozenset(aside)
        self.may_follow = may_follow(self._server, peers, aside)
        self._peers_digest = digest_of(peers, aside)
