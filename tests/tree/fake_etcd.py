"""etcd's store of keys without etcd: revisions, guarded transactions and the events of a watch, in memory."""

from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.etcd.mirror import EtcdPlan, Loading, Mirror
from batonpass.tree.etcd.wire import Delete, EtcdPut, KeyValue


class FakeEtcd:
    """Keys with the revision of their last change, and everything that ever happened, revision by revision."""

    def __init__(self, keys: EtcdKeys) -> None:
        self._keys = keys
        self.revision = 1
        self.rows: dict[bytes, KeyValue] = {}
        self.events: list[tuple[int, list[KeyValue]]] = []
        self.operations_of_largest = 0

    def txn(self, plan: EtcdPlan) -> int | None:
        """The revision at which it happened; None if the guard was another one."""
        guard = self.rows.get(self._keys.guard)
        if (0 if guard is None else guard.mod_revision) != plan.guard_revision:
            return None
        self.revision += 1
        self.operations_of_largest = max(self.operations_of_largest, len(plan.operations))
        events: dict[bytes, KeyValue] = {}
        for operation in plan.operations:
            match operation:
                case EtcdPut(key, value):
                    assert key not in events, "etcd refuses two operations on one key in one transaction"
                    events[key] = KeyValue(key, value, self.revision)
                case Delete(key, end):
                    for known in [known for known in self.rows if key <= known < (end or key + b"\0")]:
                        assert known not in events
                        events[known] = KeyValue(known, None, self.revision)
        for key, event in events.items():
            self.rows[key] = event
            if event.value is None:
                del self.rows[key]
        self.events.append((self.revision, list(events.values())))
        return self.revision

    def loading(self) -> Loading:
        """Everything there is, read in pages."""
        loading = Loading(self._keys)
        found = [self.rows[key] for key in sorted(self.rows)]
        for start in range(0, len(found), 3):
            loading.add_untrusted(found[start : start + 3])
        return loading

    def tell(self, mirror: Mirror) -> None:
        """Let a watch bring everything that happened, some of it not for the first time."""
        for revision, events in self.events:
            if revision >= mirror.guard_revision:
                mirror.take_untrusted(events, revision)
