"""Talking to other logical instances: directly (H = 1) or through relays (H = 2, 3, …).

Two things cross: sealed parcels, whose trace every relay extends, and directory queries. The answer to a query is
proved with the federation secret, which relays do not have. So a relay cannot put a key of its own in place of another.

What is to be said to one instance about many entities at the same moment is said in one parcel. Each request says for
how long it is waited for. A server that it reaches too late, on the way or there, drops it at once.
"""

import logging
import math
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import trio
from pydantic import ValidationError

from batonpass.actors.base.clock import TOLERANCE_S, Clock, stretch
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.authority.errors import MessageError
from batonpass.authority.model.addresses import with_usable_addresses
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.names import BadName, instance_of
from batonpass.authority.trust.key_pinning import (
    Pins,
    federation_clock_purpose,
    federation_purpose,
    is_proof,
    rows_proof,
)
from batonpass.authority.wire.batch import Letter, take_batch
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Message, NoAnswer, Parcel
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.errors import CryptoError, KeyConflict
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.config import PeerConfig

__all__ = ["Federation", "InstanceUnreachable"]

_log = logging.getLogger("batonpass.homeserver.names.federation")

REQUEST_TIMEOUT_S: Final = 3.0
# Members of another instance change rarely; a failed request asks again at once.
MEMBERS_TTL_NS: Final = 30_000_000_000
# One of them did not answer: it may have moved, and the others may do so next.
DOUBTED_TTL_NS: Final = 1_000_000_000
# How often members are looked for, by one small request to each other instance. So members that move one after the
# other are found though there is nothing to say.
LOOK_AROUND_S: Final = 10.0
ROW_TTL_NS: Final = 60_000_000_000
# Of a server that is silent: it may have come back elsewhere.
SILENT_ROW_TTL_NS: Final = 2_000_000_000
# Names that another instance does not have are remembered briefly: a stranger's made-up sender costs a query a second.
# A server that asks for fresh rows has seen a key that is not in the one that is known, or a handshake.
FRESH_NS: Final = 20_000_000
ABSENT_TTL_NS: Final = 1_000_000_000
MAX_ABSENT: Final = 1_000
MAX_CACHED_ROWS: Final = 10_000
MAX_DOUBTED: Final = 1_000
# Parcels with a limit of time that are under way to one instance. Each is some milliseconds of work, so this many keep
# both homes busy; the others wait for their turn.
AT_ONCE: Final = 8
# How many wait for their turn; what comes then is not sent.
MAX_WAITING: Final = 256
# An instance that does not answer in less may be well.
FAIR_S: Final = 1.0


class InstanceUnreachable(Exception):
    """Another server that is needed could not be asked or told; the request may be repeated."""


class Federation:
    """This instance's way to the others.

    Args:
        sealer: this server's name and keys.
        peers: how to reach each other instance.
        secret: the federation secret, shared by the homeservers of all instances.
        client: HTTP client for everything sent here.
        clock: monotonic and Unix time.
        pins: what is known of the keys of others.
        is_lost: whether a server, to which something was sent over the link, may be elsewhere by now.
    """

    def __init__(
        self,
        sealer: Sealer,
        peers: tuple[PeerConfig, ...],
        secret: bytes,
        client: HttpClient,
        clock: Clock,
        pins: Pins | None = None,
        is_lost: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self._sealer = sealer
        self._peers = {peer.instance: peer for peer in peers}
        self._secret = secret
        self._client = client
        self._clock = clock
        self._members: dict[str, tuple[int, list[DirectoryRow]]] = {}
        self._rows: LruTable[str, tuple[int, DirectoryRow]] = LruTable(MAX_CACHED_ROWS)
        self._absent: LruTable[str, int] = LruTable(MAX_ABSENT)
        # Addresses where no member answered when they were tried last.
        self._doubted: LruTable[str, None] = LruTable(MAX_DOUBTED)
        # The member of each instance that answered last.
        self._answered: dict[str, str] = {}
        # How many messages each has answered.
        self._heard: Counter[str] = Counter()
        # Of the instances that something was asked of, with a limit of time.
        self._turns: dict[str, trio.CapacityLimiter] = {}
        # Instances of which no member answered when they were asked last.
        self._silent: set[str] = set()
        # By how much the time of this instance is ahead of that of others, where that is more than is tolerated.
        self._ahead_s: dict[str, float] = {}
        self.pins: Final = Pins() if pins is None else pins
        self._is_lost: Final = is_lost

    def hops_to(self, instance: str) -> int | None:
        """H: how many hops away an instance is, or None when no route to it is configured."""
        peer = self._peers.get(instance)
        return None if peer is None else peer.hops

    def is_silent(self, instance: str) -> bool:
        """Whether no member of another instance answered when it was asked last, ten seconds ago or so at most."""
        return instance in self._silent

    @property
    def why_off(self) -> str:
        """A sentence for people about other instances that count by another time; empty if none is known to."""
        return "; ".join(
            f"the time of this instance is {stretch(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} that of "
            f"{instance}, and what one seals the other may take for late: set the clocks of both"
            for instance, ahead_s in sorted(self._ahead_s.items())
        )

    def _told_time(self, instance: str, now_ms: int, asked_ns: int) -> None:
        """Another instance says what time it is there. That corrects nothing: which one is right is not known."""
        took_s = (self._clock.monotonic_ns() - asked_ns) / 1e9
        ahead_s, was_off = self._clock.unix_s() - took_s / 2 - now_ms / 1e3, instance in self._ahead_s
        if abs(ahead_s) <= TOLERANCE_S + took_s / 2:
            self._ahead_s.pop(instance, None)
            return
        self._ahead_s[instance] = ahead_s
        if not was_off:
            _log.warning("%s", self.why_off)

    def reachable_instances(self) -> dict[str, int]:
        """Every other instance with a route, and its H."""
        return {name: peer.hops for name, peer in sorted(self._peers.items())}

    async def row(self, name: str, *, fresh: bool = False) -> DirectoryRow | None:
        """The directory row of a server or player of another instance, or None when that instance has none.

        Its keys follow from those that are pinned, or are those. A `fresh` one was asked for a moment ago at most, and
        that of a server that is silent a little earlier at most.

        Raises:
            PeerUnreachable: its instance cannot be asked now.
        """
        now_ns = self._clock.monotonic_ns()
        cached = self._rows.get(name)
        max_age_ns = SILENT_ROW_TTL_NS if self._is_lost(name) else ROW_TTL_NS
        if cached is not None and now_ns - cached[0] < (FRESH_NS if fresh else max_age_ns):
            return cached[1]
        if now_ns - self._absent.get(name, -ABSENT_TTL_NS) < ABSENT_TTL_NS:
            return None
        rows = await self._query(name.partition(".")[0], {"query": "row", "name": name})
        if not rows or rows[0].name != name:
            self._absent[name] = now_ns
            return None
        self._rows[name] = (now_ns, rows[0])
        return rows[0]

    async def members(self, instance: str, *, refresh: bool = False) -> list[DirectoryRow]:
        """The homeservers of another instance.

        Raises:
            PeerUnreachable: it cannot be asked now.
        """
        now_ns = self._clock.monotonic_ns()
        cached = self._members.get(instance)
        if cached is None or refresh or now_ns - cached[0] >= MEMBERS_TTL_NS:
            rows = await self._query(instance, {"query": "members"})
            if not rows:
                raise InstanceUnreachable(f"instance {instance} has registered no homeserver yet")
            self._members[instance] = cached = (now_ns, rows)
        last = self._answered.get(instance)
        return sorted(cached[1], key=lambda row: (row.rest_url in self._doubted, row.name != last))

    async def exchange(
        self,
        instance: str,
        message: Message,
        trace: Trace,
        *,
        on_path: bool,
        within_s: float = math.inf,
        first: str = "",
    ) -> tuple[Message, Trace]:
        """Send a sealed message to a homeserver of another instance; return its sealed answer, opened.

        Tries its members one after the other: the one named `first`, the one that answered last, and those last that
        did not. The same message may therefore reach two of them, which is why messages are idempotent.

        Raises:
            PeerUnreachable: none answered, or none `within_s`.
        """
        letters = [Letter(message, trace, on_path)]
        (answer,) = await self.exchange_all(instance, letters, within_s=within_s, first=first)
        if isinstance(answer, InstanceUnreachable):
            raise answer
        return answer

    async def exchange_all(
        self, instance: str, letters: Sequence[Letter], *, within_s: float = math.inf, first: str = ""
    ) -> list[tuple[Message, Trace] | InstanceUnreachable]:
        """`exchange` of each of these, in as few parcels as they fit: its answer, or what `exchange` would raise."""
        answers: list[tuple[Message, Trace] | InstanceUnreachable] = []
        waiting, before = deque(letters), self._heard[instance]
        with trio.move_on_after(within_s):
            while waiting:
                together = take_batch(waiting)
                try:
                    async with self._turn(instance, within_s):
                        # So that one that hangs leaves time for the next.
                        answers += await self._exchange(instance, together, each_s=within_s / 2, first=first)
                except InstanceUnreachable as error:
                    answers += [error] * len(together)
        if len(answers) < len(letters):
            if self._heard[instance] == before and within_s >= FAIR_S:
                # Else others have had all of its time, or the one that asked had none left.
                self._silent.add(instance)
            late = InstanceUnreachable(f"instance {instance} did not answer within {within_s:.1f} s")
            answers += [late] * (len(letters) - len(answers))
        return answers

    def _turn(self, instance: str, within_s: float) -> AbstractAsyncContextManager[None]:
        """For those without time to lose: were hundreds asked for at once, none would be answered in time.

        Raises:
            PeerUnreachable: too many wait for their turn already.
        """
        if within_s == math.inf:
            return nullcontext()
        turns = self._turns.setdefault(instance, trio.CapacityLimiter(AT_ONCE))
        if turns.statistics().tasks_waiting >= MAX_WAITING:
            raise InstanceUnreachable(f"{MAX_WAITING} requests to instance {instance} wait already")
        return turns

    async def _exchange(
        self, instance: str, letters: Sequence[Letter], *, each_s: float, first: str
    ) -> list[tuple[Message, Trace] | InstanceUnreachable]:
        problem: InstanceUnreachable | None = None
        for refresh in (False, True):
            members = await self.members(instance, refresh=refresh)
            for member in sorted(members, key=lambda row: row.name != first):
                try:
                    with trio.fail_after(each_s):
                        answers = await self._exchange_with(instance, member, letters, each_s)
                except (InstanceUnreachable, trio.TooSlowError) as error:
                    problem = (
                        error if isinstance(error, InstanceUnreachable) else InstanceUnreachable(f"{member.name} hangs")
                    )
                    self._look_again_soon(instance)
                    continue
                self._answered[instance] = member.name
                self._heard[instance] += 1
                self._silent.discard(instance)
                return answers
        self._silent.add(instance)
        raise problem or InstanceUnreachable(f"instance {instance} has no members")

    async def _exchange_with(
        self, instance: str, member: DirectoryRow, letters: Sequence[Letter], each_s: float
    ) -> list[tuple[Message, Trace] | InstanceUnreachable]:
        peer = self._peer(instance)
        try:
            keys = PublicIdentity.from_jwks_untrusted(member.keys)
        except CryptoError as error:
            raise InstanceUnreachable(f"the directory row of {member.name} holds no usable keys: {error}") from error
        now: dict[str, Any] = {"now_ns": self._clock.monotonic_ns(), "now_s": self._clock.unix_s()}
        parcel = self._sealer.seal_all(letters, to=member.name, keys=keys, relayed=peer.hops > 1, **now)
        urls = ((member.rest_url,) if member.rest_url else ()) if peer.hops == 1 else peer.urls
        body = {"to_instance": instance, "to": member.name, "parcel": parcel.to_data()}
        answer = await self._post(instance, urls, body, each_s)
        now = {"now_ns": self._clock.monotonic_ns(), "now_s": self._clock.unix_s()}
        try:
            sealed = Parcel.from_data_untrusted(answer.get("parcel"))
            opened = self._sealer.open_all_untrusted(sealed, sender=keys, **now)
        except MessageError as error:
            raise InstanceUnreachable(f"{member.name} answered something that cannot be opened: {error}") from error
        if len(opened) != len(letters):
            raise InstanceUnreachable(f"{member.name} gave {len(opened)} answers to {len(letters)} messages")
        return [_answered(one, member.name) for one in opened]

    def _look_again_soon(self, instance: str) -> None:
        """One of its members did not answer: it may have moved, and the others may do so next."""
        if (cached := self._members.get(instance)) is not None:
            soon_ns = self._clock.monotonic_ns() + DOUBTED_TTL_NS - MEMBERS_TTL_NS
            self._members[instance] = (min(cached[0], soon_ns), cached[1])

    def _doubt(self, url: str) -> None:
        """No member answers there: it is tried last, until one does."""
        self._doubted[url] = None

    async def look_around(self) -> None:
        """Learn where the members of the other instances are by now, once."""
        for instance, peer in self._peers.items():
            if peer.hops == 1 or instance in self._silent:
                try:
                    await self.members(instance, refresh=True)
                except InstanceUnreachable as error:
                    _log.debug("where the members of %s are is not known: %s", instance, error)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look around from time to time, until cancelled."""
        task_status.started()
        while True:
            try:
                await self.look_around()
            except Exception:
                _log.exception("looking for the members of other instances ran into an error of ours")
            await trio.sleep(LOOK_AROUND_S)

    async def _query(self, instance: str, query: dict[str, Any]) -> list[DirectoryRow]:
        """The rows that an instance shows, with the keys to use."""
        return await self._believed(instance, await self._ask(instance, query), frozenset())

    async def _ask(self, instance: str, query: dict[str, Any]) -> list[DirectoryRow]:
        """The rows that an instance shows, proved to come from it, and no more."""
        problem = InstanceUnreachable(f"instance {instance} did not answer (no address)")
        for url in self._urls(instance):
            try:
                rows = await self._ask_at(url, instance, query)
            except InstanceUnreachable as error:
                problem = error
            else:
                self._silent.discard(instance)
                return rows
        self._silent.add(instance)
        raise problem

    def _urls(self, instance: str) -> list[str]:
        """Where an instance can be asked: where the configuration has its members, and where they were last.

        They may have moved one by one since this member was started.
        """
        peer, (_, members) = self._peer(instance), self._members.get(instance, (0, []))
        learned = [row.rest_url for row in members if row.rest_url] if peer.hops == 1 else []
        return sorted(dict.fromkeys([*peer.urls, *learned]), key=lambda url: url in self._doubted)

    async def _ask_at(self, url: str, instance: str, query: dict[str, Any]) -> list[DirectoryRow]:
        nonce, asked_ns = secrets.token_urlsafe(16), self._clock.monotonic_ns()
        body = {"to_instance": instance, "query": query | {"nonce": nonce}}
        answer = await self._post(instance, (url,), body)
        rows, proof = answer.get("rows"), answer.get("proof")
        if not isinstance(rows, list):
            raise InstanceUnreachable(f"instance {instance} answered a directory query with something else")
        if not is_proof(proof, rows_proof(self._secret, federation_purpose(instance), nonce, rows)):
            _log.error("directory answer of %s is not proved with the federation secret: refused", instance)
            raise InstanceUnreachable(f"the directory answer of {instance} is not proved with the federation secret")
        now_ms, clock_proof = answer.get("now_ms"), answer.get("clock_proof")
        purpose = federation_clock_purpose(instance)
        # Of an earlier release there is none.
        if type(now_ms) is int and is_proof(clock_proof, rows_proof(self._secret, purpose, nonce, now_ms)):
            self._told_time(instance, now_ms, asked_ns)
        try:
            return [with_usable_addresses(DirectoryRow.from_data(row)) for row in rows]
        except ValidationError as error:
            raise InstanceUnreachable(f"instance {instance} answered rows of another form") from error

    async def _believed(self, instance: str, rows: list[DirectoryRow], asked: frozenset[str]) -> list[DirectoryRow]:
        """The rows with the keys to use. An instance speaks for its own names alone."""
        believed: list[DirectoryRow] = []
        for row in rows:
            try:
                if instance_of(row.name) != instance:
                    raise KeyConflict(f"{instance} has shown a row of {row.name}, which is not its own")
                current = await self._current_resetter(instance, row, asked)
                believed.append(self.pins.believed(row, now_s=self._clock.unix_s(), current=current))
            except (BadName, KeyConflict) as error:
                _log.error("a directory row was refused: %s", error)
                problem = InstanceUnreachable(str(error))
                if len(rows) == 1:
                    raise problem from error
        return believed

    async def _current_resetter(self, instance: str, row: DirectoryRow, asked: frozenset[str]) -> tuple[str, ...]:
        """The homeserver whose reset the row shows, once its own keys have been followed to those of today."""
        signer = self.pins.resetter_of(row)
        if signer is None or signer in asked:
            return ()
        try:
            shown = await self._ask(instance, {"query": "row", "name": signer})
            rows = [one for one in shown if one.name == signer]
            used = await self._believed(instance, rows[:1], asked | {row.name, signer})
        except InstanceUnreachable as error:
            _log.warning("the reset of %s cannot be judged now: %s", row.name, error)
            return ()
        return (signer,) if rows and used == rows[:1] else ()

    def _peer(self, instance: str) -> PeerConfig:
        peer = self._peers.get(instance)
        if peer is None:
            raise InstanceUnreachable(f"no route to instance {instance} is configured")
        return peer

    async def _post(
        self, instance: str, urls: tuple[str, ...], body: Mapping[str, Any], each_s: float = math.inf
    ) -> dict[str, Any]:
        problem, wait_s = "no address", min(REQUEST_TIMEOUT_S, each_s)
        headers = {WAIT_HEADER: str(round(wait_s * 1000))}
        for url in urls:
            try:
                answered = await self._client.request(
                    "POST", f"{url}/v1/federation", json=body, headers=headers, timeout_s=wait_s
                )
            except trio.Cancelled:
                # The one that asked does not wait any longer.
                self._doubt(url)
                raise
            except HttpFailed as error:
                problem = f"{url}: {error}"
                self._doubt(url)
                continue
            self._doubted.pop(url, None)
            try:
                answer = answered.json()
            except ValueError:
                answer = None
            if answered.status == 200 and isinstance(answer, dict):
                return answer
            message = answer.get("message", "") if isinstance(answer, dict) else ""
            problem = f"{url}: HTTP {answered.status} {message}"
        raise InstanceUnreachable(f"instance {instance} did not answer ({problem})")


def _answered(opened: OpenedMessage, member: str) -> tuple[Message, Trace] | InstanceUnreachable:
    """One of the answers to what was asked together."""
    if isinstance(opened.message, NoAnswer):
        return InstanceUnreachable(f"{member} gave no answer: {opened.message.reason or opened.message.why}")
    return opened.message, opened.trace
