"""The states that a simulated server has staged: on a disk that is as fast as memory, and survives every crash."""

from batonpass.simserver.transfer.target.staged_states import StagedState

__all__ = ["DurableStages"]


class DurableStages:
    """In place of `simserver.transfer.target.staged_states.Stages`."""

    def __init__(self) -> None:
        self.kept: dict[str, StagedState] = {}
        self.begun: tuple[str, ...] = ()

    def get(self, transfer_id: str) -> StagedState | None:
        """As `Stages.get`."""
        return self.kept.get(transfer_id)

    def waiting(self) -> list[StagedState]:
        """As `Stages.waiting`."""
        return [self.kept[transfer_id] for transfer_id in sorted(self.kept) if transfer_id not in self.begun]

    async def put(self, stage: StagedState) -> None:
        """As `Stages.put`."""
        self.kept[stage.transfer_id] = stage

    def used(self, transfer_id: str) -> None:
        """As `Stages.used`."""
        if transfer_id in self.kept and transfer_id not in self.begun:
            self.begun = (*self.begun, transfer_id)

    def drop(self, transfer_id: str) -> None:
        """As `Stages.drop`."""
        self.kept.pop(transfer_id, None)
        self.begun = tuple(name for name in self.begun if name != transfer_id)
