"""One process's part in keeping an instance's tree in etcd: the same operations as `tree.member.replica.Replica`.

Three things continue at the same time: the mirror follows etcd, waiting commands are decided and offered as guarded
transactions, one at a time and as many commands as fit, and readers are told which revision they must have seen.

A transaction that lost its race changed nothing; its commands are decided again on the newer mirror. One whose fate is
unknown is decided again, too: both compete for the same guard, so at most one of them happens, and if it was the first,
the answers that it wrote are found.
"""

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from batonpass.tree.etcd.client import EtcdClient, EtcdForbids, EtcdFull, FateUnknown, NotSent
from batonpass.tree.etcd.config import EtcdConfig
from batonpass.tree.etcd.following import EtcdReplaced, Follower
from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.etcd.leading import EtcdLeadership
from batonpass.tree.etcd.mirror import EtcdPlan, Limits, Mirror
from batonpass.tree.etcd.queue import CommandQueue, QueuedCommand
from batonpass.tree.etcd.wire import EtcdCompare
from batonpass.tree.machine.commands import Command, CommandAnswer, decode_command_untrusted, encode_command
from batonpass.tree.member.local_tree import LocalTree
from batonpass.tree.member.status import MemberStatus, ReplicaStatus
from batonpass.tree.member.triggering import TriggerProcedure, run_triggers
from batonpass.tree.net.transport import Refusal
from batonpass.tree.raft.submissions import CommandId, NoQuorum, OutcomeUnknown, value_of
from batonpass.tree.store.procedures import Procedure
from batonpass.tree.store.projections import Projection

__all__ = ["EtcdReplica"]

log = logging.getLogger("batonpass.tree.etcd")

MAX_OUTSTANDING: Final = 4096
_AGAIN_S: Final = 0.05
# How long it is said that etcd takes no changes, after it last said so.
_REFUSED_S: Final = 30.0
# How long the loser of several races in a row stays back at most, so that not all try at the same moment.
_MAX_BACKOFF_S: Final = 0.05


class _ReadRound:
    """Readers that share one question to etcd."""

    def __init__(self) -> None:
        self.answered: Final = trio.Event()
        self.guard_revision = 0
        self.refused = ""
        """Why etcd does not let this process read, in etcd's words; empty if it does."""


class EtcdReplica(LocalTree):
    """A backend whose tree is in etcd. Make it, `await nursery.start(replica.serve)`, then submit and read.

    The commands of one transaction of etcd's are one revision, as etcd's own are; watches tell what they came to.
    """

    def __init__(
        self,
        config: EtcdConfig,
        procedures: Mapping[str, Procedure],
        *,
        projections: Mapping[str, Projection] | None = None,
        triggers: Mapping[str, TriggerProcedure] | None = None,
        dice: random.Random | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`procedures` and `projections` must be the same in all processes.

        `triggers` are what nodes can store the names of, to be run when a trigger fires (`tree.member.triggering`).
        `dice` (client id, backoff) and `clock_ns` are for tests.
        """
        self._dice: Final = dice if dice is not None else random.SystemRandom()
        self._keys: Final = EtcdKeys(config.root, config.kind, config.instance)
        limits = Limits(config.max_operations, config.max_request_bytes)
        self._mirror: Final = Mirror(self._keys, procedures, limits, projections or {})
        super().__init__(self._mirror.machine, config.name, self._dice)
        self._config: Final = config
        self._clock_ns: Final = clock_ns
        self._triggers: Final = dict(triggers or {})
        self._leadership: Final = EtcdLeadership(self._keys.leader, config.name)
        self._queue: Final = CommandQueue()
        self._slots: Final = trio.Semaphore(MAX_OUTSTANDING)
        self._work = trio.Event()
        self._round = _ReadRound()
        self._readers = trio.Event()
        self._transactions = 0
        # When etcd last had no room for a change, or forbade it, and its own sentence.
        self._refused: tuple[float, str] = (-math.inf, "")
        # Its sentence while it forbids even to read; else empty.
        self._forbidden = ""
        self._scope: Final = trio.CancelScope()
        self._failure: Exception | None = None
        self._served = False
        self._client: EtcdClient | None = None
        self._follower: Final = Follower(self._keys, self._mirror)
        self._members: dict[int, tuple[str, str]] = {}
        self._leader_id = 0
        self._term = 0

    # --- life -----------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; started at once. Can be called once.

        Raises `Damaged`, `EtcdReplaced`, `RefusedByEtcd`, or `OSError` when the files of certificates cannot be used:
        each is a sentence for the operator, and none is worth a retry without a change. An etcd that cannot be reached
        is waited for.
        """
        if self._served:
            raise RuntimeError("serve() can be called once; make another EtcdReplica to start again")
        self._served = True
        try:
            async with EtcdClient(self._config) as client:
                self._client = client
                with self._scope:
                    async with trio.open_nursery() as nursery:
                        for part in (self._follower.follow, self._write, self._answer_readers, self._pulse):
                            nursery.start_soon(self._guarded, part, client)
                        if self._triggers:
                            nursery.start_soon(self._guarded, self._lead, client)
                        task_status.started()
        finally:
            self._client = None
            self._queue.give_up()
            self._history.cut_all("the process stopped")
        if self._failure is not None:
            raise self._failure

    async def _guarded(self, part: Callable[[EtcdClient], Awaitable[None]], client: EtcdClient) -> None:
        try:
            await part(client)
        except Exception as error:
            if self._failure is None:
                log.critical("%s stops: %s", self._config.name, error)
                self._failure = error
            self._scope.cancel()

    # --- submitting -----------------------------------------------------------------------------------------------

    async def submit(
        self, procedure: str, args: Any = None, *, timeout_s: float = 5.0, command_id: CommandId | None = None
    ) -> Any:
        """Run a procedure on the tree, exactly once, and return its value; see `tree.member.backend.Backend.submit`."""
        began_ns = self._clock_ns()
        if command_id is None:
            command_id = self._next_command_id()
        # As bytes and back: a procedure must see what another process would see.
        command = decode_command_untrusted(encode_command(Command(procedure, args, *command_id)))
        if self._mirror.is_read_only(procedure):
            await self.read_barrier(timeout_s)
            answer = CommandAnswer.from_encoded(self._mirror.read(command.procedure, command.args))
        else:
            answer = await self._carried_out(command, timeout_s)
        self._latencies.add(self._clock_ns() - began_ns)
        return value_of(answer)

    async def _carried_out(self, command: Command, timeout_s: float) -> CommandAnswer:
        """The answer to a command that may change something; raises `NoQuorum` and `OutcomeUnknown`."""
        waiting: QueuedCommand | None = None
        with trio.move_on_after(timeout_s if self._client is not None else 0.0):
            async with self._slots:
                waiting = self._queue.enter(command)
                self._work.set()
                try:
                    await waiting.answered.wait()
                finally:
                    self._queue.leave(waiting)
        if waiting is None or (waiting.answer is None and not waiting.sent):
            reason = "is not running" if self._client is None else f"had no answer of etcd within {timeout_s} s"
            if waiting is not None and waiting.refused:
                reason = f"was refused by etcd: {waiting.refused}"
            raise NoQuorum(f"{self._config.name} {reason}; the command was not submitted")
        answer = None if waiting.answer is None else CommandAnswer.from_encoded(waiting.answer)
        # What this call alone submitted was applied before, if it is too old now: its answer was forgotten.
        if answer is None or (answer.code == "stale_command" and command.client == self._client_id):
            message = f"no answer to {command.procedure} within {timeout_s} s; it may be applied later"
            raise OutcomeUnknown(message, waiting.command_id)
        return answer

    async def _write(self, client: EtcdClient) -> None:
        """Carry out what waits, one transaction after the other."""
        await self._follower.loaded.wait()
        lost_in_a_row = 0
        while True:
            self._work = trio.Event()
            # What is submitted in the same turn of the scheduler goes into the same transaction.
            await trio.lowlevel.checkpoint()
            plan = self._mirror.rehearse(waiting.command for waiting in self._queue)
            self._answer(plan.settled)
            if plan.is_empty:
                await self._work.wait()
                continue
            try:
                won = await self._offer(client, plan)
            except NotSent as error:
                self._was_not_sent(error)
                await trio.sleep(_AGAIN_S)
                continue
            except FateUnknown as error:
                log.info("fate unknown: %s", error)
                won = False
            if won:
                lost_in_a_row, self._refused = 0, (-math.inf, "")
                continue
            await self._catch_up(client, plan)
            lost_in_a_row += 1
            await trio.sleep(self._dice.uniform(0, min(_MAX_BACKOFF_S, 0.001 * 2 ** min(lost_in_a_row, 10))))

    async def _offer(self, client: EtcdClient, plan: EtcdPlan) -> bool:
        """Whether what was planned has happened; raises `NotSent`, `FateUnknown`, `RefusedByEtcd`."""
        if not plan.operations:
            if await self._guard_revision(client) != plan.guard_revision:
                return False
            self._answer(plan.answered)
            return True
        planned = (self._queue.get((client_id, number)) for client_id, number, _ in plan.answered)
        newly_sent = [waiting for waiting in planned if waiting is not None and not waiting.sent]
        for waiting in newly_sent:
            waiting.sent = True
        try:
            answer = await client.txn(EtcdCompare(self._keys.guard, plan.guard_revision), plan.operations)
        except NotSent:
            for waiting in newly_sent:
                waiting.sent = False
            raise
        self._follower.saw(answer.header)
        if answer.succeeded:
            self._transactions += 1
            self._mirror.accepted(plan, answer.header.revision)
            self._answer(plan.answered)
            self._follower.accepted()
        return answer.succeeded

    async def _catch_up(self, client: EtcdClient, plan: EtcdPlan) -> None:
        """Until the mirror knows what happened instead of the plan, or that nothing did."""
        revision = await self._guard_revision_at_last(client)
        await self._follower.until(revision)
        for waiting in self._queue:
            answer = self._mirror.answer_to(*waiting.command_id)
            if answer is not None:
                self._queue.answer(*waiting.command_id, answer)
            elif revision > plan.guard_revision:
                # The guard has moved on, so no transaction offered until now can happen any more.
                waiting.sent = False

    def _answer(self, answered: list[tuple[str, int, bytes]]) -> None:
        for client, number, answer in answered:
            self._queue.answer(client, number, answer)

    async def _guard_revision(self, client: EtcdClient) -> int:
        """etcd's revision of the guard, linearizably: everything acknowledged before is covered by it.

        Raises `NotSent`, `FateUnknown`, `RefusedByEtcd`, `EtcdReplaced`.
        """
        known = self._mirror.guard_revision
        ranged = await client.range(self._keys.guard)
        self._follower.saw(ranged.header)
        revision = ranged.found[0].mod_revision if ranged.found else 0
        if revision < known:
            raise EtcdReplaced(
                f"{self._keys.guard.decode()} was changed at revision {known} and is now said to be of {revision}: "
                "etcd was restored from a backup, or the key deleted; restart to accept what it holds"
            )
        return revision

    async def _guard_revision_at_last(self, client: EtcdClient) -> int:
        """The same, however long it takes."""
        while True:
            try:
                return await self._guard_revision(client)
            except NotSent as error:
                self._was_not_sent(error)
            except FateUnknown as error:
                log.info("etcd does not answer: %s", error)
            await trio.sleep(_AGAIN_S)

    def _was_not_sent(self, error: NotSent) -> None:
        """Nothing was done; if only people can mend that, all that wait are told so."""
        log.info("nothing sent to etcd: %s", error)
        if isinstance(error, EtcdFull | EtcdForbids):
            self._refused = (trio.current_time(), str(error))
            self._queue.refuse(str(error))

    # --- reading --------------------------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """SHA-256 of the tree and of all answers: equal in all processes that know the same revision of etcd's."""
        return self._mirror.digest()

    async def read_barrier(self, timeout_s: float = 2.0) -> None:
        """Wait until local reads see everything that was acknowledged anywhere before this call (linearizable).

        One linearizable read of the guard key, shared by all that wait. Raises `NoQuorum` if that could not be had.
        """
        if self._client is not None:
            with trio.move_on_after(timeout_s):
                shared = self._round
                self._readers.set()
                await shared.answered.wait()
                if shared.refused:
                    raise NoQuorum(f"{self._config.name} was refused by etcd: {shared.refused}")
                await self._follower.until(shared.guard_revision)
                return
        raise NoQuorum(f"etcd did not confirm to {self._config.name} within {timeout_s} s that it is up to date")

    async def _answer_readers(self, client: EtcdClient) -> None:
        """Ask etcd on behalf of all that wait; who comes while it is being asked goes into the next round."""
        while True:
            await self._readers.wait()
            self._readers = trio.Event()
            shared, self._round = self._round, _ReadRound()
            asking = True
            while asking:
                asking = False
                try:
                    shared.guard_revision = await self._guard_revision(client)
                except EtcdForbids as error:
                    self._follower.bear(error)
                    shared.refused = str(error)
                except (NotSent, FateUnknown) as error:
                    log.info("etcd does not answer: %s", error)
                    asking = True
                    await trio.sleep(_AGAIN_S)
            if shared.refused and not self._forbidden:
                log.warning("etcd forbids %s to read: %s", self._config.name, shared.refused)
            self._forbidden = shared.refused
            shared.answered.set()

    @property
    def applied_index(self) -> int:
        """etcd's revision of the last change that is in the local tree."""
        return self._mirror.guard_revision

    async def wait_applied(self, index: int) -> int:
        """Wait until everything up to this revision of etcd's is in the local tree; the one applied then."""
        while self.applied_index < index:
            await self._follower.advanced()
        return self.applied_index

    async def _lead(self, client: EtcdClient) -> None:
        """Run what triggers fire whenever this process is the one that does."""
        await self._follower.loaded.wait()
        await self._leadership.keep(client, partial(run_triggers, self, self._triggers))

    # --- what is known --------------------------------------------------------------------------------------------

    async def _pulse(self, client: EtcdClient) -> None:
        """Look at etcd from time to time, so that a dead watch or a lost leader is noticed without any load."""
        while True:
            leader_id = 0
            with trio.move_on_after(2 * self._config.request_timeout_s):
                try:
                    leader_id, self._term = await client.leader()
                    if leader_id and leader_id not in self._members:
                        self._members = await client.members()
                except (NotSent, FateUnknown) as error:
                    self._follower.bear(error)
                    log.info("no pulse: %s", error)
                    leader_id = 0
                try:
                    await self.read_barrier(self._config.request_timeout_s)
                except NoQuorum as error:
                    log.info("no pulse: %s", error)
                    leader_id = 0
            self._leader_id = leader_id
            await trio.sleep(self._config.pulse_s)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Always empty: who may connect is etcd's business."""
        return ()

    @property
    def status(self) -> ReplicaStatus:
        """What is known now. Leader, term and members are etcd's; an index is its revision of the last change.

        `is_leader` says whether this process is the one that runs what triggers fire.
        """
        endpoint = None if self._client is None else self._client.endpoint
        name, _ = self._members.get(self._leader_id, (f"{self._leader_id:x}", ""))
        members = []
        for member, url in sorted(self._members.values()):
            address = urlsplit(url)
            members.append(MemberStatus(member, address.hostname or "", address.port or 2379, url == endpoint))
        return ReplicaStatus(
            name=self._config.name,
            leader=name if self._leader_id else None,
            term=self._term,
            members=tuple(members),
            commit_index=self.applied_index,
            applied_index=self.applied_index,
            is_leader=self._leadership.is_held,
            ready=self._leader_id != 0 and self._follower.loaded.is_set(),
            rounds=self._transactions,
            latency=self._latencies.summary(),
            cannot_write=self._forbidden or self._why_refused(),
        )

    def _why_refused(self) -> str:
        """What etcd said when it took no change lately; this process may have had nothing to write since."""
        at_s, why = self._refused
        return why if why and trio.current_time() - at_s < _REFUSED_S else ""
