"""Resuming what dead servers left: every server that is alive is asked for copies, and the best one counts.

Real: the procedures, and every rule of which copy counts and which server is waited for, as in
`homeserver.failover.takeover`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Candidate, all_answered, choose, never_began, waited_for
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.procedures.foreign_custody import asked_of, is_possible
from batonpass.authority.wire.recovery import AdoptItem, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collect, Collected
from batonpass.homeserver.failover.takeover import believed

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.granting import Granting
    from batonpass.scenarios.simulation.machines.home import MachineHome

__all__ = ["Recovering", "There"]

_AGAIN_S: Final = 0.5
_AGAIN_VAIN_S: Final = 1.0

Answers = Mapping[str, Sequence[FoundItem]]


class There(NamedTuple):
    """Which servers are alive, by incarnation, and which may come back."""

    alive: dict[str, int]
    away: frozenset[str] = frozenset()


@dataclass(slots=True)
class _MachineRound:
    """One question to every server that is alive: which copies are there of these?"""

    asks: Callable[[str], Sequence[RaisedItem]]
    there: There
    decide: Callable[[Answers], None]
    asked_s: float
    answers: dict[str, Sequence[FoundItem]] = field(default_factory=dict)


class Recovering:
    """The recoveries of one home instance."""

    def __init__(self, home: "MachineHome", granting: "Granting") -> None:
        self._home: Final = home
        self._granting: Final = granting
        self._rounds: Final[dict[int, _MachineRound]] = {}
        self._by_name: Final[dict[tuple[str, str], int]] = {}
        self._number = 0
        self._since_s: Final[dict[tuple[str, int], float]] = {}
        self._not_before_s: Final[dict[str, float]] = {}
        self._adopted: Final[dict[str, tuple[str, int]]] = {}
        self._told_s: dict[str, float] = {}
        self.recovered = 0

    # --- asking ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        name: tuple[str, str],
        asks: Callable[[str], Sequence[RaisedItem]],
        there: There,
        decide: Callable[[Answers], None],
    ) -> None:
        """Ask every server that is there, and then decide; one question of a name at a time."""
        if name in self._by_name:
            return
        self._number += 1
        self._by_name[name] = self._number
        asking = self._rounds[self._number] = _MachineRound(asks, there, decide, self._home.schedule.now_s)
        self._tell(self._number, asking)

    def _tell(self, number: int, asking: _MachineRound) -> None:
        for server in asking.there.alive:
            if server not in asking.answers:
                self._home.send(server, Collect(number=number, items=list(asking.asks(server))))

    def collected(self, message: Collected, sender: str) -> None:
        """A server has said what it has."""
        asking = self._rounds.get(message.number)
        if asking is not None and asking.there.alive.get(sender) == message.incarnation:
            asking.answers[sender] = message.items

    def _go_on_asking(self) -> None:
        now_s = self._home.schedule.now_s
        alive = self._granting.there_too(tuple(self._home.others), 0.0) or self._granting.there()
        for name, number in list(self._by_name.items()):
            asking = self._rounds[number]
            if all_answered(asking.there.alive, asking.answers.keys(), alive.alive):
                del self._by_name[name], self._rounds[number]
                asking.decide(asking.answers)
            elif now_s - asking.asked_s >= _AGAIN_S:
                asking.asked_s = now_s
                self._tell(number, asking)

    # --- going on --------------------------------------------------------------------------------------------------

    def rows(self) -> list[RecoveryRow]:
        """What no server simulates since its authority died."""
        rows = self._home.rows
        return [RecoveryRow.from_data(rows.data["recoveries", name]) for name in rows.children(("recoveries",))]

    def look(self) -> None:
        """Take everything as far as it goes now."""
        self._finish()
        self._go_on_asking()
        now_s = self._home.schedule.now_s
        for row in self.rows():
            if row.target:
                self._have_adopted(row)
            elif ("row", row.entity) not in self._by_name and now_s >= self._not_before_s.get(row.entity, 0.0):
                since_s = self._since_s.setdefault((row.entity, row.epoch), now_s)
                there = self._granting.there_too(tuple(sorted({*row.abroad, *row.abroad_too})), since_s)
                if there is not None and there.alive:
                    self.ask(("row", row.entity), partial(_asked_of, row), there, partial(self._decide, row, there))

    def _decide(self, row: RecoveryRow, there: There, answers: Answers) -> None:
        found = [(holder, item) for holder, some in answers.items() for item in some
                 if item.entity == row.entity and is_possible(row, holder, item.epoch)]  # fmt: skip
        candidates = [
            Candidate(holder, item.source, Fence(item.epoch, item.sub), item.tick, item.state_hash)
            for holder, item in believed(row, found)
        ]
        best = choose(candidates, last=row.last)
        silent = (there.away | there.alive.keys()) - answers.keys()
        has_begun = not never_began(row, candidates)
        home = self._home
        if best is None:
            if home.run("recovery.lost", items=[{"entity": row.entity, "epoch": row.epoch}]):
                home.lost(row.entity)
        elif not waited_for(row, best, silent, has_begun=has_begun):
            fields = {"tick": best.tick, "state_hash": best.state_hash, "source": best.source.value}
            fields |= {"target": best.holder, "incarnation": there.alive[best.holder]}
            item = {"entity": row.entity, "epoch": row.epoch, "held": row.held} | fields
            if home.run("recovery.finish", items=[item]):
                home.schedule.note(f"{row.entity} is {best.holder}'s to resume from {best.tick} ({best.source})")
                return
        # A server may come back, or die.
        self._not_before_s[row.entity] = home.schedule.now_s + _AGAIN_VAIN_S

    def _have_adopted(self, row: RecoveryRow) -> None:
        now_s = self._home.schedule.now_s
        if now_s - self._told_s.get(row.entity, 0.0) < _AGAIN_S:
            return
        self._told_s[row.entity] = now_s
        record = self._home.record(row.entity)
        item = AdoptItem(
            entity=row.entity,
            epoch=row.epoch,
            sub=0,
            tick=row.tick,
            state_hash=row.state_hash,
            owner=record.owner,
            owner_rev=record.owner_rev,
        )
        if record.incarnation:
            self._home.send(row.target, Adopt(incarnation=record.incarnation, items=[item]))

    def adopted(self, message: Adopted, sender: str) -> None:
        """A server has gone on with entities; the log is told with the next look."""
        for item in message.items:
            self._adopted[item.entity] = (sender, item.epoch)

    def _finish(self) -> None:
        adopted = [(entity, *by) for entity, by in self._adopted.items()]
        self._adopted.clear()
        if adopted:
            items = [{"entity": entity, "epoch": epoch, "target": target} for entity, target, epoch in adopted]
            self.recovered += len(self._home.run("recovery.adopted", items=items))
            for entity, _, _ in adopted:
                self._told_s.pop(entity, None)
                self._not_before_s.pop(entity, None)


def _asked_of(row: RecoveryRow, server: str) -> Sequence[RaisedItem]:
    return (asked_of(row, server),)
