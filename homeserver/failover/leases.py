"""The leases of this instance's simulation servers: granting renewals, and ending what is not renewed.

`authority.machines.lease` has the rules, `authority.procedures.lease` what is written. This is one member's part. It
takes the office of granting while it leads the log, answers renewals while it holds it, and looks around for those that
stopped coming. Where no member leads the log (it is kept in etcd), the office goes to the member that notices that its
holder is silent.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.machines.lease import Challenges, Granter, LeaseTerms
from batonpass.authority.model.addresses import BadAddress, check_server
from batonpass.authority.model.records import LeaseOffice, LeaseRow, Role
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures.log_rollback import alarm_of
from batonpass.authority.protocol_version import PROTOCOL_VERSION, why_other_release
from batonpass.authority.trust.signed_positions import LogPlace, LogPosition
from batonpass.authority.wire.lease import MAX_PEERS, Renew, RenewReply, digest_of, digest_of_members, number_of
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import Message
from batonpass.homeserver.log.log_positions import LogPositions, new_mark
from batonpass.homeserver.log.store import InstanceStore
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["Leases"]

_log = logging.getLogger("batonpass.homeserver.failover.leases")


class Starter(Protocol):
    """What runs something beside the rest; a nursery."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run it from now on."""


class Leases:
    """One member's part in granting leases.

    Args:
        name: this homeserver.
        granter: by which it grants; other parts look at it to see whether this member is in office.
        leads: whether this member leads the log now; None if that has no leader among the members.
        sweep: takes from a server whatever earlier incarnations of it simulated; false if it has to be tried again.
        positions: by which a log that was restored from an older copy is noticed.
        witnessed: told what each server shows of where other instances' logs were.
        is_better_elsewhere: whether the office is left to others, where it does not go with the leadership of the log;
            see `Clocks`.
    """

    def __init__(
        self,
        name: str,
        store: InstanceStore,
        clock: Clock,
        granter: Granter,
        leads: Callable[[], bool | None],
        sweep: Callable[[LeaseRow], Awaitable[bool]],
        positions: LogPositions,
        witnessed: Callable[[str, Sequence[str]], None],
        is_better_elsewhere: Callable[[], bool],
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._leads = leads
        self._sweep = sweep
        self._positions = positions
        # Servers that were told of a log which is not this one; bounded by the directory.
        self._misled: set[str] = set()
        # Servers of other releases, with the version that each speaks; bounded likewise.
        self._others: dict[str, int] = {}
        self._witnessed: Final = witnessed
        self._is_better_elsewhere: Final = is_better_elsewhere
        # Shown to this member while it granted leases, and under which office; until the log has it.
        self._shown = ("", 0, 0)
        self.granter: Final = granter
        self._challenges: Final = Challenges(secrets.token_bytes(32), self.granter.terms)
        self._busy: set[tuple[str, int]] = set()
        self._office_seen = (0, 0)
        self._office_changed_ns = clock.monotonic_ns()
        self._kept_ns = 0

    @property
    def went_back(self) -> str:
        """Why this log is an older one than the one that was used last, for people; empty if that was not shown.

        Nothing leads out of this but a start with another log, or an operator who accepts the loss.
        """
        return alarm_of(self._store.tree) or self._shown[0]

    @property
    def terms(self) -> LeaseTerms:
        """How long a lease lasts."""
        return self.granter.terms

    # --- renewing --------------------------------------------------------------------------------------------------

    async def renewed(self, opened: OpenedMessage) -> Message:
        """As `renew`, for a message as it arrived."""
        if not isinstance(opened.message, Renew):
            raise MessageError(f"{opened.message.type} renews nothing")
        message = opened.message
        if opened.is_late and message.challenge is None:
            raise MessageError(f"a renewal of {opened.sender} is late by the clock here, and has no challenge in it")
        if message.protocol != PROTOCOL_VERSION and message.server == opened.sender:
            reply = self._of_another_release(message)
        else:
            reply = await self.renew(message, opened.sender)
        if message.challenge is None:
            return reply
        told = {
            "challenge": self._challenges.now(self._clock.monotonic_ns()),
            "now_ms": round(self._clock.unix_s() * 1e3),
        }
        return reply.model_copy(update=told)

    def _of_another_release(self, message: Renew) -> RenewReply:
        """It would take other messages of this homeserver for none, and wait for what never comes."""
        if self._others.get(message.server) != message.protocol:
            self._others[message.server] = message.protocol
            text = "other_release: the lease of %s is not renewed: %s"
            why = why_other_release(message.server, message.protocol, self._name, PROTOCOL_VERSION)
            _log.error(text, message.server, why)
        return _answer(message, "other_release", protocol=PROTOCOL_VERSION)

    async def renew(self, message: Renew, sender: str) -> RenewReply:
        """Answer a simulation server that renews its lease, or begins an incarnation.

        Raises:
            MessageError: it speaks for another server, or is where it cannot be reached.
            NoQuorum, OutcomeUnknown: whether it is granted is not known, so it is not.
        """
        received_ns = self._clock.monotonic_ns()
        HOMESERVER_SENDERS.check_role(message, sender, "", None)
        self._check_addresses(message)
        self._witnessed(sender, message.witnesses)
        office = self.granter.office
        if (verdict := await self._verdict_by_the_log(message)) is not None:
            return verdict
        try:
            await self._claimed(message)
        except Refused as refused:
            return _refused(message, refused)
        if not self.granter.heard(message.server, message.incarnation, message.renewal, received_ns):
            return _answer(message, "elsewhere")
        # A homeserver that takes the office after this gives every server a full term from then on.
        await self._store.confirmed()
        row = self._store.lease(message.server)
        if row is None or row.incarnation != message.incarnation or row.phase is LeasePhase.OVER:
            return _answer(message, "over", known=0 if row is None else row.incarnation)
        if not (self._is_mine(office) and self.granter.may_grant(message.server, message.incarnation, office)):
            return _answer(message, "elsewhere")
        row = await self._whose_disk(row, message, office)
        leases = self._store.leases()
        peers = [one.server for one in leases if one.phase is LeasePhase.ALIVE][:MAX_PEERS]
        aside = self.aside_of(peers)
        return _answer(
            message,
            "granted" if row.phase is LeasePhase.ALIVE else "returning",
            known=row.incarnation,
            term_ms=self.terms.granter_ns // 1_000_000,
            draining=self._store.drain(message.server) is not None,
            alone=row.sole,
            peers=None if digest_of(peers, aside) == message.peers else peers,
            aside=aside,
            position=None if message.position is None else self._positions.now(office),
            members_changed=self._knows_other_members(message),
            lost=self._is_lost(message.position),
        )

    async def _verdict_by_the_log(self, message: Renew) -> RenewReply | None:
        """What there is to say without a look at the lease: because of the log, of its age, or of the office."""
        holder = self._store.lease_office().holder
        if self.went_back and (alarm_of(self._store.tree) or holder == self._name):
            return _answer(message, "went_back", position_known=await self._knows_position_of(message))
        if not self.granter.office:
            # A member that does not grant leases is no judge either: its log may be the one that is wrong.
            return _answer(message, "elsewhere", officer="" if holder == self._name else holder)
        now_ns = self._clock.monotonic_ns()
        if message.challenge is not None and not self._challenges.is_recent(message.challenge, now_ns):
            # It may be a recording: nothing in it counts.
            return _answer(message, "again")
        if await self._has_gone_back(message):
            return _answer(message, "went_back", position_known=await self._knows_position_of(message))
        if missing := await self._lacks(message):
            return _answer(message, "went_back", missing=missing)
        return None

    async def _knows_position_of(self, message: Renew) -> bool:
        """Whether what this server shows is of this log, or of what that has in common with the one that it was.

        A server that was granted a lease by the older one would hold that against the newest log when it is put back.
        """
        if not message.position:
            return False
        try:
            return await self._positions.missing(message.position) is None
        except (MessageError, NoQuorum):
            return False

    def _is_lost(self, position: str | None) -> bool:
        """Whether what this server shows is of another history, which was accepted: else it would not get here."""
        if not position:
            return False
        return self._positions.is_of_another_history(position)

    def _knows_other_members(self, message: Renew) -> bool:
        """Whether a server, which says what it knows, knows other homeservers than there are: it may ask again."""
        return message.members not in ("", digest_of_members(self._store.servers(Role.HOMESERVER)))

    def aside_of(self, peers: Sequence[str]) -> list[str]:
        """Those of these servers that are drained: they may be stopped soon, and should be no backup replicas."""
        drained = {drain.server for drain in self._store.drains()}
        return [name for name in peers if name in drained]

    def believed_by_all(self) -> tuple[list[str], int]:
        """The living servers, and the number of what all of these are told of each other, once they have heard it."""
        peers = [one.server for one in self._store.leases() if one.phase is LeasePhase.ALIVE][:MAX_PEERS]
        return peers, number_of(digest_of(peers, self.aside_of(peers)))

    async def _has_gone_back(self, message: Renew) -> bool:
        """Whether the log is an older one: then no lease is granted, and none is ended.

        For what it would decide by is not what was.
        """
        if not self.went_back and message.position:
            try:
                missing = await self._positions.missing(message.position)
            except MessageError as error:
                # Nothing is proved: its keys may have been replaced, or it is made up.
                _log.info("%s names a position of the log that says nothing: %s", message.server, error)
                return False
            if missing is not None:
                await self.prove_went_back(message.server, missing)
        return bool(self.went_back)

    async def prove_went_back(self, who: str, missing: LogPosition | LogPlace) -> None:
        """A server, or another instance, has shown what this instance has signed: that the log was where it was not.

        Shown to the homeserver that grants leases; the others learn it by the log.
        """
        if self.went_back or not self.granter.office:
            return
        why = (
            f"{who} proves that the log was at revision {missing.revision} under office "
            f"{missing.office}, and it has never been there: it was restored from an older copy"
        )
        self._shown = (why, self.granter.office, missing.office)
        self.granter.left_office()
        _log.error("log_went_back: %s. No leases are granted by %s from now on", why, self._name)
        await self._tell_the_log()

    async def _tell_the_log(self) -> None:
        """Have all members know what this one was shown, also after their next start."""
        why, office, lost = self._shown
        if not why or alarm_of(self._store.tree) or self._store.lease_office().number != office:
            # The log has it, and if it is taken away from there, that counts here too. Or another member grants leases
            # by now, which has to be shown that itself.
            self._shown = ("", 0, 0)
            return
        try:
            await self._store.submit("log.alarm", by=self._name, office=office, lost=lost, why=why)
        except (NoQuorum, OutcomeUnknown) as error:
            _log.info("that the log went back is not in it yet: %s", error)
        else:
            if alarm_of(self._store.tree):
                self._shown = ("", 0, 0)

    async def _lacks(self, message: Renew) -> str:
        """Where the log has never been, of where this server heard that it was: it is granted nothing then.

        No other server is unleased for it, since any could say so.
        """
        missing = await self._positions.lacking(message.heard)
        if not missing:
            self._misled.discard(message.server)
        elif message.server not in self._misled:
            self._misled.add(message.server)
            _log.error(
                "log_went_back: %s was told by homeservers that the log was at %s, and it has never been there: it was "
                "restored from an older copy. That server is unleased",
                message.server,
                missing,
            )
        return missing

    async def _whose_disk(self, row: LeaseRow, message: Renew, office: int) -> LeaseRow:
        """Have the log know whether the server's own disk counts, by the other servers and what they say of copies."""
        leases = [one for one in self._store.leases() if one.server != row.server]
        is_last = all(one.phase is LeasePhase.OVER for one in leases)
        if row.phase is not LeasePhase.ALIVE or not (message.shared if row.sole else is_last):
            return row
        said = {"server": row.server, "incarnation": row.incarnation, "renewal": message.renewal, "office": office}
        try:
            if is_last:
                # Also if it counted before: no late repetition of what the server has said takes that back.
                others = [one.server for one in leases]
                return LeaseRow.from_data(await self._store.submit("lease.sole", **said, others=others))
            return LeaseRow.from_data(await self._store.submit("lease.shared", **said))
        except Refused as refused:
            _log.info("whether the disk of %s counts is as it was: %s", row.server, refused)
            return row

    async def _claimed(self, message: Renew) -> None:
        """Have the log know this incarnation, and where it is. Raises `Refused` if it is none, or not yet."""
        row = self._store.lease(message.server)
        is_known = row is not None and (row.incarnation, row.nonce) == (message.incarnation, message.nonce)
        if is_known and self._is_where_it_says(message):
            return
        if is_known:
            _log.warning("%s is at %s, and its link at port %d", message.server, message.rest_url, message.link_port)
        await self._store.submit(
            "lease.claim",
            server=message.server,
            incarnation=message.incarnation,
            nonce=message.nonce,
            previous_nonce=message.previous_nonce,
            addresses=[message.rest_url, message.link_host, message.link_port] if message.link_port else [],
        )

    def _check_addresses(self, message: Renew) -> None:
        """What no registration enters into the directory, no renewal does."""
        mine = self._store.row(self._name)
        if message.link_port and mine is not None and mine.link_host:
            try:
                check_server(message.rest_url, message.link_host, message.link_port, beside=mine.link_host)
            except BadAddress as error:
                raise MessageError(f"no server could reach {message.server}: {error}") from error

    def _is_where_it_says(self, message: Renew) -> bool:
        """Whether the directory has the addresses of this incarnation, if it says which they are."""
        row = self._store.row(message.server)
        said = (message.rest_url, message.link_host, message.link_port)
        return not message.link_port or (row is not None and row.address == said)

    def _is_mine(self, office: int) -> bool:
        return self._store.lease_office().number == office

    # --- looking around --------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take the office when it is due, and end leases while it is held, until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            await self.look_around(nursery)

    async def look_around(self, nursery: Starter) -> None:
        """As `serve`; what takes time runs in `nursery`."""
        self.granter.left_office()
        self._busy.clear()
        while True:
            await self._look(nursery)
            await self._clock.sleep_s(self.terms.look_every_ns / 1e9)

    async def _look(self, nursery: Starter) -> None:
        office = self._store.lease_office()
        if self._shown[0]:
            await self._tell_the_log()
        if self.granter.office and self.went_back:
            self.granter.left_office()
        if self.granter.office and office.number != self.granter.office:
            _log.info("%s grants leases now, not %s", office.holder, self._name)
            self.granter.left_office()
        await self._hold_office(office)
        rows = self._store.leases()
        alive = [(row.server, row.incarnation) for row in rows if row.phase is not LeasePhase.OVER]
        late = self.granter.overdue(alive, self._clock.monotonic_ns())
        for lease in late:
            self._begin(nursery, self._expire, lease)
        for row in rows if self.granter.office else ():
            if not row.swept and (row.server, row.incarnation) not in late:
                self._begin(nursery, self._swept, (row.server, row.incarnation))

    def _begin(self, nursery: Starter, work: Callable[[str, int], Awaitable[None]], lease: tuple[str, int]) -> None:
        """One thing at a time for each lease, and none may keep this from looking."""
        if lease not in self._busy:
            self._busy.add(lease)
            nursery.start_soon(self._guarded, work, lease)

    async def _guarded(self, work: Callable[[str, int], Awaitable[None]], lease: tuple[str, int]) -> None:
        try:
            await work(*lease)
        except (Refused, NoQuorum, OutcomeUnknown) as error:
            _log.info("the lease of %s (incarnation %d): %s; looking again", *lease, error)
        except Exception:
            _log.exception("the lease of %s (incarnation %d) ran into an error of ours", *lease)
        finally:
            self._busy.discard(lease)

    async def _hold_office(self, office: LeaseOffice) -> None:
        now_ns = self._clock.monotonic_ns()
        if (office.number, office.kept) != self._office_seen:
            self._office_seen, self._office_changed_ns = (office.number, office.kept), now_ns
        leads = self._leads()
        if self.went_back or (leads is None and self._is_better_elsewhere()):
            return
        try:
            if not self.granter.office:
                silent = now_ns - self._office_changed_ns > self.terms.granter_ns
                if leads or (leads is None and (silent or not office.holder)):
                    await self._take_office(office)
            elif leads is None and now_ns - self._kept_ns > self.terms.holder_ns // 2:
                self._kept_ns = now_ns
                await self._store.submit("lease.keep_office", office=self.granter.office)
        except (NoQuorum, OutcomeUnknown) as error:
            _log.info("the office of granting leases: %s", error)

    async def _take_office(self, office: LeaseOffice) -> None:
        data = await self._store.submit("lease.take_office", by=self._name, after=office.number, mark=new_mark())
        taken = LeaseOffice.from_data(data)
        if taken.holder == self._name and taken.number == office.number + 1 and not self.went_back:
            self.granter.took_office(taken.number, self._clock.monotonic_ns())
            _log.info("%s grants leases from now on (office %d)", self._name, taken.number)

    async def _expire(self, server: str, incarnation: int) -> None:
        if not self.granter.office:
            return
        await self._store.submit("lease.expire", server=server, incarnation=incarnation, office=self.granter.office)
        _log.warning("the lease of %s (incarnation %d) is over: it was not renewed in time", server, incarnation)

    async def _swept(self, server: str, incarnation: int) -> None:
        row = self._store.lease(server)
        if row is None or row.incarnation != incarnation:
            return
        if await self._sweep(row):
            # What the log has learned since of an earlier incarnation has this one swept again. The next look does
            # that, of the homeserver that grants leases then.
            seen = {"late": row.late, "phase": row.phase.value}
            await self._store.submit("lease.swept", server=server, incarnation=incarnation, **seen)


def _answer(
    message: Renew,
    verdict: str,
    *,
    known: int = 0,
    officer: str = "",
    term_ms: int = 0,
    draining: bool = False,
    alone: bool = False,
    peers: list[str] | None = None,
    aside: Sequence[str] = (),
    position: str | None = None,
    members_changed: bool = False,
    missing: str = "",
    position_known: bool = False,
    lost: bool = False,
    protocol: int = 0,
) -> RenewReply:
    return RenewReply.model_validate(
        {
            "server": message.server,
            "incarnation": message.incarnation,
            "renewal": message.renewal,
            "verdict": verdict,
            "known": known,
            "officer": officer,
            "term_ms": term_ms,
            "draining": draining,
            "alone": alone,
            "peers": peers,
            "aside": [] if peers is None else list(aside),
            "position": position,
            "members_changed": members_changed,
            "missing": missing,
            "position_known": position_known,
            "lost": lost,
            "protocol": protocol,
        }
    )


def _refused(message: Renew, refused: Refused) -> RenewReply:
    if refused.reason not in (Reason.LEASE_HELD, Reason.LEASE_OVER):
        raise refused
    verdict = "held" if refused.reason is Reason.LEASE_HELD else "over"
    return _answer(message, verdict, known=int(refused.details["incarnation"]))
