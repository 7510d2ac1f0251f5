"""Servers that lack one guard of what belongs together or is on its way in company, and of owners that go away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from authority import absence_procedures, transfer_procedures
from authority.absence import LeavePolicy
from authority.messages import OwnerRequest
from authority.rows import Rows
from homeserver.store import replicated_procedures
from scenarios.simulation.servers.parts import Parts
from simserver.silence import Silences

__all__ = ["GROUP_WEAKNESSES"]

Procedure = Callable[[Any, Any], Any]

_ABSENCE: Final = ("entity.owner_silent", "entity.owner_left")


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
    ("never-silent", "nobody notices that an owner is silent", Parts(silences=_NeverSilent)),
    ("deaf-to-owners", "who gives no inputs here counts as silent", Parts(silences=_DeafSilences)),
    (
        "swaps-policies",
        "what is to be adopted ends, and what is to end is adopted",
        Parts(procedures=_changed(absence_procedures, "LeavePolicy", _Swapped, *_ABSENCE)),
    ),
)
"""Name, what is missing, and the servers that lack it."""
