"""Servers that lack one guard of hosted scenes: what is corrected, what is told, and when."""

from collections.abc import Sequence
from typing import Final

from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.entity.state import Life
from batonpass.simserver.sync.scenes.host import HostedScenes, _HostedScene

__all__ = ["SCENE_MUTANTS", "CorrectsNobody", "KeepsItsMembers", "TellsBeforeTaken"]


class CorrectsNobody(HostedScenes):
    """A write that may not be is not taken, and its writer is told nothing."""

    def _here(self, entity: str) -> _HostedScene:
        hosted = super()._here(entity)
        hosted.held.scene.corrections.correct = lambda *_, **__: None  # type: ignore[method-assign]
        return hosted


class TellsBeforeTaken(HostedScenes):
    """Members are told of a tick whether the entity has taken it or not, also of one that is frozen."""

    def _tick(self, entity: str, hosted: _HostedScene) -> None:
        super()._tick(entity, hosted)
        hosted.waiting.clear()
        for name, messages in (hosted.untold or {}).items():
            if (port := hosted.ports.get(name)) is not None:
                port.put(messages)
        hosted.untold = None

    def _may_act(self, life: Life) -> bool:
        return not life.over


class KeepsItsMembers(HostedScenes):
    """Connections go on when the entity has another fence here, or has left."""

    def _holds(self, entity: str, hosted: _HostedScene) -> bool:
        return True

    def _tick(self, entity: str, hosted: _HostedScene) -> None:
        hosted.untold = None
        for name, messages in hosted.authority.tick().items():
            if (port := hosted.ports.get(name)) is not None:
                port.put(messages)


SCENE_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    ("corrects-nobody", "who wrote what is not his is told nothing", ServersParts(scenes=CorrectsNobody)),
    ("tells-before-taken", "members are told of what the entity has not taken", ServersParts(scenes=TellsBeforeTaken)),
    (
        "keeps-its-members",
        "members stay with a server that has the scene no more",
        ServersParts(scenes=KeepsItsMembers),
    ),
)
"""Name, what is missing, and the servers that lack it."""
