"""Servers that lack one guard of what belongs together or is on its way in company, and of owners that go away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from authority import absence_procedures, group_commit, transfer_procedures
from authority.absence import LeavePolicy
from authority.errors import Reason
from authority.messages import OwnerRequest
from authority.records import GroupPhase, GroupRecord, Phase, TransferRecord
from authority.rows import Rows
from authority.transfer_rows import find_transfer
from homeserver.store import replicated_procedures
from scenarios.simulation.servers.parts import Parts
from simserver.silence import Silences

__all__ = ["GROUP_WEAKNESSES"]

Procedure = Callable[[Any, Any], Any]

_DECIDE: Final = ("transfer.commit", "transfer.refuse", "transfer.decline")
_ABSENCE: Final = ("entity.owner_silent", "entity.owner_left")
_COMMIT: Final = group_commit._commit


@contextmanager
def _instead(module: Any, name: str, other: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, other)
    try:
        yield
    finally:
        setattr(module, name, before)


def _changed(module: Any, name: str, other: Any, *procedures: str) -> Mapping[str, Procedure]:
    """These procedures of the log, with another function under a name of their module."""

    def weak(procedure: Procedure) -> Procedure:
        def run(rows: Any, args: Any) -> Any:
            with _instead(module, name, other):
                return procedure(rows, args)

        return run

    real = replicated_procedures()
    return {one: weak(real[one]) for one in procedures}


def _nobody(_rows: Rows, *_: Any) -> str:
    return ""


def _commits_the_rest(rows: Rows, group: GroupRecord) -> None:
    """One member is refused, and those that are prepared go all the same."""
    prepared = {
        name: entity
        for name, entity in group.members.items()
        if (transfer := find_transfer(rows, name)) is not None and transfer.phase is Phase.PREPARED
    }
    if prepared:
        _COMMIT(rows, group.changed(members=prepared))
        group_commit._save(rows, group.changed(phase=GroupPhase.REFUSED))


def _refuses_one(rows: Rows, transfer: TransferRecord, reason: Reason) -> None:
    group = group_commit.find_group(rows, transfer.group)
    if group is not None and group.phase is GroupPhase.OPEN:
        _commits_the_rest(rows, group)


class _NeverSilent(Silences):
    """Notices nobody's silence."""

    def sweep(self) -> list[OwnerRequest]:
        return []


class _DeafSilences(Silences):
    """Takes everybody for silent since it began to simulate what they own."""

    def heard(self, player: str) -> None:
        return


class _Swapped:
    DESPAWN, ADOPT, KEEP = LeavePolicy.ADOPT, LeavePolicy.DESPAWN, LeavePolicy.KEEP


GROUP_WEAKNESSES: Final[Sequence[tuple[str, str, Parts]]] = (
    (
        "parts-families",
        "a hand-over that nobody has proposed leaves parent and children behind",
        Parts(procedures=_changed(transfer_procedures, "parts_from", _nobody, "transfer.commit")),
    ),
    (
        "divides-groups",
        "one member of a group is refused, and those that are ready go without it",
        Parts(procedures=_changed(transfer_procedures, "refuse_group", _refuses_one, *_DECIDE)),
    ),
    ("never-silent", "nobody notices that an owner is silent", Parts(silences=_NeverSilent)),
    ("deaf-to-owners", "who gives no inputs here counts as silent", Parts(silences=_DeafSilences)),
    (
        "swaps-policies",
        "what is to be adopted ends, and what is to end is adopted",
        Parts(procedures=_changed(absence_procedures, "LeavePolicy", _Swapped, *_ABSENCE)),
    ),
)
"""Name, what is missing, and the servers that lack it."""
