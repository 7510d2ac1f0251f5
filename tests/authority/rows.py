"""The dumbest possible tree: a dictionary of paths, for procedures that run without a log."""

import json
from typing import Any

from batonpass.authority.model.records import DirectoryRow, EntityRecord, Role, TransferRecord
from batonpass.authority.model.reserved_paths import RESERVED_ROOTS

Path = tuple[str, ...]


class DictRows:
    """`authority.model.rows.Rows` in memory. Data goes through JSON, as it does on the way through the log."""

    def __init__(self) -> None:
        self.data: dict[Path, str] = {}
        self.revisions = 0

    @property
    def revision(self) -> int:
        """Nobody counts here; who needs revisions sets them."""
        return self.revisions

    def get_or(self, path: Path, default: Any) -> Any:
        assert all(path), f"the tree has no empty names: {path}"
        text = self.data.get(path)
        return default if text is None else json.loads(text)

    def put(self, path: Path, data: Any) -> None:
        assert all(path), f"the tree has no empty names: {path}"
        assert path[0] in RESERVED_ROOTS, f"clients may write to {path} too: add {path[0]!r} to RESERVED_ROOTS"
        self.data[path] = json.dumps(data)

    def delete(self, path: Path) -> None:
        for known in [known for known in self.data if known[: len(path)] == path]:
            del self.data[known]

    def count_children(self, path: Path) -> int:
        return len({known[len(path)] for known in self.data if known[: len(path)] == path and len(known) > len(path)})

    # --- reading what procedures wrote -----------------------------------------------------------------------------

    def entity(self, entity_id: str) -> EntityRecord:
        return EntityRecord.from_data(self.get_or(("entities", entity_id), None))

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        data = self.get_or(("transfers", transfer_id), None)
        return None if data is None else TransferRecord.from_data(data)

    def transfers(self) -> list[str]:
        return [path[1] for path in self.data if path[0] == "transfers"]


def directory_row(name: str, role: Role = Role.SIMSERVER, **fields: Any) -> DirectoryRow:
    """A row whose keys are as good as any, where nobody checks them."""
    return DirectoryRow.from_data({"name": name, "role": role, "keys": {"keys": [name]}} | fields)
