"""What the servers of other instances have heard of this log, and those of this instance of theirs.

A log that was restored from an older copy is found out by what was signed before (`homeserver.log.log_positions`). What
was decided within the last second may be known to servers of other instances alone. They keep what was signed for them,
and show it to their own homes with each renewal of their lease. The homes of this instance ask those. The member that
grants leases asks. A log can only be restored while its members are stopped, and one that starts takes the office anew.
So it asks often in the first minute of that, and now and then after it, since an instance may have been silent.
"""

import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import MAX_WITNESSES, LogInquiry, LogWord, place_said_untrusted
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.homeserver.failover.leases import Starter
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation, InstanceUnreachable
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["LogWitnesses", "Witnesses"]

_log = logging.getLogger("batonpass.homeserver.failover.log_witness")

LOOK_S: Final = 0.5
# Until servers that were asked for their word have renewed their leases, some times over.
EAGER_NS: Final = 60_000_000_000
ASK_EAGERLY_NS: Final = 1_000_000_000
ASK_NS: Final = 10_000_000_000


class Witnesses:
    """What this instance's servers have shown of where other instances' logs were.

    Of each instance that can be reached the last words, under whichever offices. A log that was restored has an office
    of its own, and its words are not to displace those that show that. Nothing is verified: the member that asks can do
    that. Bounded by the servers of the directory, and by what a renewal may show.
    """

    def __init__(self, is_reachable: Callable[[str], bool]) -> None:
        self._is_reachable: Final = is_reachable
        # What is shown and not kept may be of use with the next renewal: its instance may be reached then.
        self._kept: Final[dict[str, set[str]]] = {}
        self._said: Final[defaultdict[str, dict[str, list[tuple[LogPlace, str]]]]] = defaultdict(dict)

    def told(self, server: str, tokens: Sequence[str]) -> None:
        """A server shows these, and nothing else any more."""
        if self._kept.get(server, set()) == set(tokens):
            return
        kept = self._kept[server] = set()
        for said in self._said.values():
            said.pop(server, None)
        for token in tokens:
            try:
                instance, place = place_said_untrusted(token)
            except MessageError as error:
                _log.info("%s shows something that is no word of a log: %s", server, error)
                continue
            if self._is_reachable(instance):
                self._said[instance].setdefault(server, []).append((place, token))
                kept.add(token)

    def of(self, instance: str) -> list[str]:
        """What is known of this instance's log: the latest words under each office, then those before them."""
        ranked: list[tuple[int, str]] = []
        behind: Counter[tuple[int, str]] = Counter()
        for place, token in sorted(itertools.chain(*self._said.get(instance, {}).values()), reverse=True):
            # One that is made up may be the latest.
            ranked.append((behind[place.office, place.mark], token))
            behind[place.office, place.mark] += 1
        return [token for _, token in sorted(ranked, key=lambda one: one[0])[:MAX_WITNESSES]]


class LogWitnesses:
    """One member's questions to other instances, and its answers to theirs.

    Args:
        witnesses: what this instance's servers have shown.
        officer: the member that grants leases here, so that servers show it to that one. None if this member does, and
            then it is for this member to ask the others.
        went_back: told of an instance whose servers prove that this log was at a place where it has never been.
    """

    def __init__(
        self,
        store: InstanceStore,
        directory: Directory,
        federation: Federation,
        positions: LogPositions,
        witnesses: Witnesses,
        officer: Callable[[], str | None],
        went_back: Callable[[str, LogPlace], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._store: Final = store
        self._directory: Final = directory
        self._federation: Final = federation
        self._positions: Final = positions
        self._witnesses: Final = witnesses
        self._officer: Final = officer
        self._went_back: Final = went_back
        self._clock: Final = clock
        self._begun_ns = 0
        self._was_in_office = False
        self._number = 0
        self._next_ns: Final[dict[str, int]] = {}
        self._officers: Final[dict[str, str]] = {}
        self._busy: Final[set[str]] = set()

    # --- answering -------------------------------------------------------------------------------------------------

    async def answer(self, opened: OpenedMessage) -> LogWord:
        """A home of another instance asks where our servers have heard that its log was."""
        if not isinstance(opened.message, LogInquiry):
            raise MessageError(f"{opened.message.type} is no question about a log")
        number, officer = opened.message.number, self._officer()
        if officer is not None:
            return LogWord(number=number, officer=officer)
        return LogWord(number=number, witnesses=self._witnesses.of(instance_of(opened.sender)))

    # --- asking ----------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask every other instance from time to time, until cancelled; none waits for another."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            await self.look_around(nursery)

    async def look_around(self, nursery: Starter) -> None:
        """As `serve`; whatever waits for another instance runs in `nursery`."""
        self._busy.clear()
        while True:
            now_ns, is_in_office = self._clock.monotonic_ns(), self._officer() is None
            if is_in_office and not self._was_in_office:
                self._begun_ns = now_ns
                self._next_ns.clear()
            self._was_in_office = is_in_office
            for instance in self._federation.reachable_instances() if is_in_office else ():
                if instance not in self._busy and now_ns >= self._next_ns.get(instance, 0):
                    self._busy.add(instance)
                    nursery.start_soon(self._asked, instance)
            await self._clock.sleep_s(LOOK_S)

    async def _asked(self, instance: str) -> None:
        try:
            await self.ask(instance)
        except (InstanceUnreachable, NoQuorum) as error:
            _log.debug("what %s has heard of this log is not known: %s", instance, error)
        except Exception:
            _log.exception("asking %s what it has heard of this log ran into an error of ours", instance)
        finally:
            now_ns = self._clock.monotonic_ns()
            is_eager = now_ns - self._begun_ns < EAGER_NS
            self._next_ns[instance] = now_ns + (ASK_EAGERLY_NS if is_eager else ASK_NS)
            self._busy.discard(instance)

    async def ask(self, instance: str) -> None:
        """Ask an instance once.

        Raises:
            PeerUnreachable: it does not say.
            NoQuorum: where this log has been is not known.
        """
        word = await self._word_of(instance)
        if word.officer:
            # That one is the first to be asked from now on.
            self._officers[instance] = word.officer
            word = await self._word_of(instance)
        missing = await self._positions.missing_of(word.witnesses)
        if missing is not None:
            await self._went_back(instance, missing)

    async def _word_of(self, instance: str) -> LogWord:
        self._number += 1
        number = self._number
        message, trace = LogInquiry(number=number), Trace(f"log-{number:08d}")
        first = self._officers.get(instance, "")
        reply, _ = await self._federation.exchange(instance, message, trace, on_path=False, first=first)
        if not isinstance(reply, LogWord) or reply.number != number:
            raise InstanceUnreachable(f"{instance} answered a question about a log with something else")
        return reply
