"""Leases under skewed and paused clocks, lost and late messages, and changes of the granter, as a small model.

Real: `Holder`, `Granter`, `LeaseTerms` and the procedures of the log. Here: two homeservers that may take the office,
two processes of one simulation server (the second one may be started while the first is only paused), a log that is
atomic, and messages that arrive in any order, late, twice or never. Every node has a clock of its own, which runs
too fast or too slow by up to what is allowed, and began anywhere.

The promise: from the moment at which the log calls a lease over, or knows a later incarnation that did not prove that
the earlier one is dead, nobody acts under it.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.errors import Refused
from batonpass.authority.machines.lease import (
    MAX_DRIFT_PERMILLE,
    Granter,
    Holder,
    HolderPhase,
    LeaseTerms,
    Over,
    Renewed,
)
from batonpass.authority.model.records import LeaseOffice
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures.lease import LEASE_PROCEDURES, find_lease, lease_office
from tests.authority.rows import DictRows, directory_row

SERVER: Final = "alpha.s1"
MS: Final = 1_000_000
TERMS: Final = LeaseTerms(1_000 * MS)


@dataclass
class NodeClock:
    """Runs at `permille` of true time, from `offset_ns`."""

    offset_ns: int
    permille: int

    def at(self, true_ns: int) -> int:
        return self.offset_ns + true_ns * self.permille // 1000


@dataclass
class Renewal:
    """A renewal on its way, at a granter that asks the log, or answered."""

    process: int
    incarnation: int
    number: int
    sent_ns: int
    granter: int = -1
    office: int = 0
    verdict: str = ""


@dataclass
class Rules:
    """What the model does; a mutant changes one of these."""

    granter: type[Granter] = Granter
    terms: LeaseTerms = TERMS
    counts_from_reply: bool = False
    asks_the_log: bool = True
    office_is_checked: bool = True
    drops_before_claiming: bool = True


@dataclass
class Process:
    """One process of the simulation server, with its clock."""

    clock: NodeClock
    nonce: str
    holder: Holder = field(default_factory=Holder)
    renewals: int = 0
    paused: bool = False

    def acts(self, true_ns: int) -> bool:
        return self.holder.may_act(self.clock.at(true_ns))


class LeaseModel:
    """The whole of it. Methods are what may happen; `check` is the promise."""

    def __init__(self, clocks: list[NodeClock], rules: Rules) -> None:
        self.rules = rules
        self.true_ns = 0
        self.rows = DictRows()
        self.rows.put(("servers", SERVER), directory_row(SERVER).to_data())
        self.clocks = clocks[:2]
        self.granters = [rules.granter(rules.terms) for _ in self.clocks]
        self.processes = [Process(clock, f"{number:032x}") for number, clock in enumerate(clocks[2:])]
        self.network: list[Renewal] = []
        self.expiries: list[tuple[int, int]] = []
        self.ended: set[tuple[int, int]] = set()

    def _run(self, procedure: str, **args: Any) -> Any:
        try:
            return LEASE_PROCEDURES[procedure](self.rows, args)
        except Refused:
            return None

    # --- time ------------------------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        self.true_ns += ms * MS

    # --- granters --------------------------------------------------------------------------------------------------

    def take_office(self, index: int) -> None:
        """This homeserver leads the log now."""
        after = lease_office(self.rows).number
        office = LeaseOffice.from_data(self._run("lease.take_office", by=str(index), after=after))
        self.granters[index].took_office(office.number, self.clocks[index].at(self.true_ns))

    def look(self, index: int) -> None:
        """A granter looks around: what is late is on its way to the log from here on."""
        row = find_lease(self.rows, SERVER)
        alive = [] if row is None or row.phase is LeasePhase.OVER else [(SERVER, row.incarnation)]
        granter = self.granters[index]
        for _, incarnation in granter.overdue(alive, self.clocks[index].at(self.true_ns)):
            self.expiries.append((incarnation, granter.office))

    def expire(self, index: int) -> None:
        """The log gets to see an end that some granter submitted, perhaps long ago."""
        incarnation, office = self.expiries.pop(index % len(self.expiries))
        if not self.rules.office_is_checked:
            office = lease_office(self.rows).number
        if self._run("lease.expire", server=SERVER, incarnation=incarnation, office=office) is not None:
            self._over(incarnation)

    def _over(self, incarnation: int) -> None:
        self.ended |= {(number, incarnation) for number in range(len(self.processes))}

    # --- the simulation server -------------------------------------------------------------------------------------

    def renew(self, index: int) -> None:
        """A process sends a renewal, of its incarnation or of the next one."""
        process = self.processes[index]
        if process.paused:
            return
        if process.holder.phase is HolderPhase.OVER or not process.holder.incarnation:
            row = find_lease(self.rows, SERVER)
            process.holder = Holder(1 if row is None else row.incarnation + 1)
        process.renewals += 1
        sent_ns = process.clock.at(self.true_ns)
        self.network.append(Renewal(index, process.holder.incarnation, process.renewals, sent_ns))

    def arrive(self, index: int, granter: int, *, again: bool) -> None:
        """A renewal reaches a granter, which begins to ask the log."""
        message = self.network[index % len(self.network)]
        if message.granter >= 0:
            return
        if not again:
            self.network.remove(message)
        nonce = self.processes[message.process].nonce
        if not self.granters[granter].office:
            return
        claimed = self._run(
            "lease.claim", server=SERVER, incarnation=message.incarnation, nonce=nonce, previous_nonce=""
        )
        if claimed is None:
            self.network.append(
                Renewal(message.process, message.incarnation, message.number, message.sent_ns, granter, 0, "over")
            )
            return
        now_ns = self.clocks[granter].at(self.true_ns)
        if self.granters[granter].heard(SERVER, message.incarnation, message.number, now_ns):
            office = self.granters[granter].office
            asking = Renewal(message.process, message.incarnation, message.number, message.sent_ns, granter, office)
            self.network.append(asking)

    def confirm(self, index: int) -> None:
        """The log has answered a granter, as it is now."""
        message = self.network[index % len(self.network)]
        if message.granter < 0 or message.verdict:
            return
        granter, row = self.granters[message.granter], find_lease(self.rows, SERVER)
        if row is None or row.incarnation != message.incarnation or row.phase is LeasePhase.OVER:
            verdict = "over" if self.rules.asks_the_log else "granted"
        else:
            mine = lease_office(self.rows).number == message.office or not self.rules.asks_the_log
            granted = mine and granter.may_grant(SERVER, message.incarnation, message.office)
            verdict = "granted" if granted else "elsewhere"
        message.verdict = verdict

    def answer(self, index: int) -> None:
        """An answer reaches its process."""
        message = self.network[index % len(self.network)]
        process = self.processes[message.process]
        if not message.verdict or process.paused:
            return
        self.network.remove(message)
        now_ns = process.clock.at(self.true_ns)
        if message.incarnation != process.holder.incarnation:
            return
        if message.verdict == "granted":
            sent_ns = now_ns if self.rules.counts_from_reply else message.sent_ns
            process.holder.handle(Renewed(sent_ns, self.rules.terms), now_ns)
        elif message.verdict == "over":
            process.holder.handle(Over(), now_ns)

    def lose(self, index: int) -> None:
        self.network.pop(index % len(self.network))

    def pause(self, index: int, *, paused: bool) -> None:
        """A process stands still: it sends and hears nothing, and wakes up believing what it believed."""
        self.processes[index].paused = paused

    # --- the promise -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        acting = []
        for number, process in enumerate(self.processes):
            # A paused process does nothing while it is paused; what it does first when it wakes is asked then.
            if process.acts(self.true_ns) and not process.paused:
                acting.append((number, process.holder.incarnation))
        for lease in acting:
            assert lease not in self.ended, f"process {lease[0]} acts under incarnation {lease[1]}, which is over"
        assert len(acting) < 2, f"two processes act: {acting}"


def clocks(offsets: list[int], permilles: list[int]) -> list[NodeClock]:
    """Two of granters, two of processes."""
    return [NodeClock(offset, permille) for offset, permille in zip(offsets, permilles, strict=True)]


SLOWEST: Final = 1000 - MAX_DRIFT_PERMILLE
FASTEST: Final = 1000 + MAX_DRIFT_PERMILLE
