"""Coming back to the log that counts, after this server has followed one that was taken back.

A home instance whose log was restored from an older copy grants leases by it and gives entities, until a server shows
that it went back (`authority.trust.signed_positions`). A server that it was granted one by has taken up, written down
and copied entities. It did so under fences that the log which is put back has given to others, or to none. It cannot
tell them apart itself. So before it follows its home again it asks what of all that is its own
(`authority.procedures.log_rollback`). It gives up everything else, in memory and on disk, and is another incarnation
then. What it has of entities of other instances is theirs to judge: it is kept as what any server has that was
restarted.

Entities that are given up are put aside first (`simserver.durability.put_aside`). The log that is left may be the older
one, of which an operator has accepted that it lacks something. Then what it does not know may be all that is left of an
entity.

Nothing is asked where the log has been at the last position that this server was told of. That is the case if none has
granted it anything since the copy was made: then it has followed no other.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import MAX_HELD, HeldInquiry, HeldItem, HeldWord
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import Aside, PutAside
from batonpass.simserver.durability.replication import Replication, new_copy
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.staged_states import Stages

__all__ = ["LogRollback"]

_log = logging.getLogger("batonpass.simserver.failover.log_rollback")

Stay = tuple[str, Fence]
Staged = tuple[str, Fence, str]


class LogRollback:
    """What this server has of its instance's entities, and giving up what of it the log does not know."""

    def __init__(
        self,
        ports: SimserverPorts,
        holdings: Holdings,
        ledger: Ledger,
        replication: Replication,
        arrivals: Arrivals,
        departures: Departures,
        recovery: Adoption,
        stages: Stages,
        put_aside: PutAside,
    ) -> None:
        self._put_aside: Final = put_aside
        self._clock: Final = ports.clock
        self._server: Final = ports.name
        self._instance: Final = instance_of(ports.name)
        self._home: Final = ports.home
        self._holdings: Final = holdings
        self._ledger: Final = ledger
        self._replication: Final = replication
        self._arrivals: Final = arrivals
        self._departures: Final = departures
        self._recovery: Final = recovery
        self._stages: Final = stages
        self._number = 0

    async def find_way_back(self, position: str) -> bool:
        """Give up what the log of this home has not given, if it has not been at `position`; whether that was so.

        Entities that are given up are put aside, and gone from where they were, when this returns; nothing of this
        server may act meanwhile.

        Raises:
            HomeUnreachable, HomeRefused: it is not known what is to be kept, so nothing was given up.
            DiskFailed: what is to be given up cannot be put aside, so nothing was.
        """
        await self._ledger.flush()
        # Of what it has itself, and of what others have staged here, whose states their sources name.
        stays: list[Staged] = sorted({(*stay, "") for stay in self._stays()} | self._staged())
        kept: set[Staged] = set()
        rest = iter(stays)
        while True:
            some = list(islice(rest, MAX_HELD))
            word = await self._ask(position, some)
            if word.has_been_there:
                return False
            kept |= {(item.entity, item.fence, item.by) for item in word.kept}
            if len(some) < MAX_HELD:
                break
        own = {(entity, fence) for entity, fence, by in kept if not by}
        why = "this server simulated it, and the log that its home has now did not give it to this server"
        given_up = {(entity, fence) for entity, fence, by in stays if not by} - own
        await self._put_aside.keep_many(self._asides(given_up, kept, why))
        self._remember_what_left(own)
        self._give_up({entity for entity, _, by in stays if not by}, own)
        for stage in self._stages:
            if self._is_ours(stage.entity) and (stage.entity, stage.fence, stage.source) not in kept:
                self._stages.drop(stage.transfer_id)
        await self._ledger.flush()
        return True

    def _staged(self) -> set[Staged]:
        return {(one.entity, one.fence, one.source) for one in self._stages if self._is_ours(one.entity)}

    async def disown(self, entity: str, fence: Fence) -> None:
        """Put aside what is simulated here under this fence, and have nothing of it any more: it is not this server's.

        Raises:
            DiskFailed: it cannot be put aside, and is still here.
        """
        await self._ledger.flush()
        holding = self._holdings.get(entity)
        if holding is None or holding.fence != fence:
            return

        def is_it(one: str) -> bool:
            return one == entity

        if (copy := _copy_of(holding)) is not None:
            why = f"it was simulated here, and the log of {instance_of(entity)} has not given it to this server"
            self._put_aside.keep([Aside.of(entity, copy, self._clock.unix_s(), why)])
        self._ledger.give_up({entity: ()})
        self._holdings.give_up(entity, ())
        self._departures.give_up({entity})
        self._replication.handed_over.give_up(is_it, ())
        self._replication.give_up((), is_it)
        self._arrivals.give_up(is_it)
        self._recovery.give_up(is_it)

    async def _ask(self, position: str, stays: list[Staged]) -> HeldWord:
        self._number += 1
        before = self._departures.handed_on.before
        items = [
            HeldItem(
                entity=entity,
                epoch=fence.epoch,
                sub=fence.sub,
                by=by,
                went_on=[] if by else before(entity, fence.epoch),
                since=0 if by else self._holdings.since(entity),
            )
            for entity, fence, by in stays
        ]
        question = HeldInquiry(number=self._number, server=self._server, position=position, items=items)
        answer = await self._home.ask_alone(question, Trace(f"held-{self._number:08d}"))
        word = None if answer is None else answer.message
        if not isinstance(word, HeldWord) or word.number != self._number:
            raise HomeUnreachable("the answer is none to what this server has")
        return word

    def _stays(self) -> set[Stay]:
        """Every entity of this instance that was ever simulated here, as far as anything of that is left."""
        return {(entity, fence) for entity, fence in self._all_stays() if self._is_ours(entity)}

    def _all_stays(self) -> Iterator[Stay]:
        for holding in self._holdings:
            yield holding.id, holding.fence
        yield from self._holdings.all_lived()
        yield from self._ledger.all_lived()
        yield from self._ledger.all_checkpoints()
        for entity, fence, _, _ in self._ledger.all_handed_over():
            yield entity, fence

    def _asides(self, given_up: set[Stay], kept: set[Staged], why: str) -> Iterator[Aside]:
        """The newest state of each custody term that is given up, and what was staged for terms that will not be."""
        newest: dict[Stay, Copy] = {}
        for entity, copy in self._all_copies({entity for entity, _ in given_up}):
            known = newest.get((entity, copy.fence))
            if (entity, copy.fence) in given_up and (known is None or known.tick < copy.tick):
                newest[entity, copy.fence] = copy
        for stage in self._stages:
            if self._is_ours(stage.entity) and (stage.entity, stage.fence, stage.source) not in kept:
                copy = Copy(stage.fence, stage.tick, stage.state, stage.state_hash, CopySource.STAGED)
                newest.setdefault((stage.entity, stage.fence), copy)
        now_s = self._clock.unix_s()
        for (entity, _), copy in sorted(newest.items()):
            yield Aside.of(entity, copy, now_s, why)

    def _all_copies(self, entities: set[str]) -> Iterator[tuple[str, Copy]]:
        for entity in entities:
            holding = self._holdings.get(entity)
            if holding is not None and (own := _copy_of(holding)) is not None:
                yield entity, own
            if (copy := self._replication.table.get(entity)) is not None:
                yield entity, copy
            if (checkpoint := self._ledger.checkpoint_of(entity)) is not None:
                yield entity, new_copy(*checkpoint, CopySource.CHECKPOINT)
        for entity, fence, tick, state in self._ledger.all_handed_over():
            if entity in entities:
                yield entity, new_copy(fence, tick, state, CopySource.CHECKPOINT)

    def _remember_what_left(self, own: set[Stay]) -> None:
        """Note to which servers this one handed on what is its own by the log that is left; they are asked for it."""
        for entity, fence in sorted(own):
            gone = self._holdings.gone(entity)
            if gone is not None and gone.fence.epoch > fence.epoch:
                self._departures.handed_on.note(entity, fence.epoch, gone.moved_to)

    def _is_ours(self, entity: str) -> bool:
        return instance_of(entity) == self._instance

    def _give_up(self, entities: set[str], kept: set[Stay]) -> None:
        """Resume nothing, and count only what is `kept` as a copy: of the last custody term by the log."""
        self._recovery.step_down()
        fences: dict[str, set[Fence]] = {entity: set() for entity in entities}
        for entity, fence in kept:
            fences[entity].add(fence)
        lost = sorted(entity for entity, of_ours in fences.items() if not of_ours)
        self._ledger.give_up(fences)
        for entity, of_ours in fences.items():
            self._holdings.give_up(entity, of_ours)
        # A source keeps the frozen state of an entity that it hands over until it is gone, and longer.
        self._departures.give_up(set(lost))
        self._replication.handed_over.give_up(self._is_ours, kept)
        self._replication.give_up(kept, self._is_ours)
        self._arrivals.give_up(self._is_ours)
        self._recovery.give_up(self._is_ours)
        if lost:
            names = ", ".join(lost[:10]) + ("" if len(lost) <= 10 else ", ...")
            _log.warning(
                "%d entities were simulated here by a log that was taken back, and are put aside "
                "(docs/reference/operations.md, what was put aside): %s",
                len(lost),
                names,
            )


def _copy_of(holding: Holding) -> Copy | None:
    """What an entity has come to here, if it can be written."""
    life = holding.life
    state = None if life.over else life.encoded_if_portable(whole=True)
    return None if state is None else new_copy(life.fence, life.tick, state, CopySource.OWN)
