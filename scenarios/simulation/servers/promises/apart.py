"""Groups whose entities are moved each by itself, and what their reports must say."""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord, Phase

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["Apart"]


class Apart:
    """Looks at each such group when it is made, and in the end."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self.groups: Final[dict[str, str]] = {}
        """By their ids, the instances where they are known."""

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something."""
        if procedure != "group.propose" or not args.get("apart") or args["group"] in self.groups:
            return
        self.groups[args["group"]] = instance
        store = self._cluster.store_of(instance)
        for name, entity in GroupRecord.from_data(answer).members.items():
            transfer, record = store.transfer(name), store.entity(entity)
            if transfer is None or transfer.phase is Phase.PERMITTED:
                continue
            if record is not None and record.authority != args["target"] and _is_alone(record):
                text = f"{entity} could be moved to {args['target']}, and is refused in {args['group']}"
                self._cluster.judge.violated("apart", f"{text}: {transfer.reason}")

    def unsettled(self) -> str:
        """Which report is not complete, or says that one was kept by another, in a sentence; empty if none is."""
        for name, instance in self.groups.items():
            store = self._cluster.store_of(instance)
            group = store.group(name)
            if group is None:
                continue
            if group.phase is not GroupPhase.APART:
                return f"{name} was to be moved apart, and is {group.phase}"
            for transfer in (store.transfer(one) for one in group.members):
                if transfer is None:
                    continue
                if transfer.phase is Phase.PREPARED:
                    # What is only permitted may be ordered again within a minute.
                    return f"{name} has {transfer.entity} wait for others ({transfer.id})"
                if transfer.reason == Reason.GROUP_FAILED and not transfer.group:
                    return f"{transfer.id} of {name} failed because another one did"
        return ""


def _is_alone(record: EntityRecord) -> bool:
    return bool(record.authority) and not record.parent and not record.children
