"""Every change of the replicated rows, as deterministic procedures over one tree transaction, by name.

Homeservers submit them through the log; each runs on every member in the same order. A procedure that raises `Refused`
leaves the tree untouched.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from authority.absence_procedures import ABSENCE_PROCEDURES
from authority.bulk_procedures import BULK_PROCEDURES
from authority.deletion import DELETION_PROCEDURES
from authority.directory_procedures import DIRECTORY_PROCEDURES
from authority.drain_procedures import DRAIN_PROCEDURES
from authority.entity_procedures import ENTITY_PROCEDURES
from authority.group_requests import GROUP_PROCEDURES
from authority.hierarchy import HIERARCHY_PROCEDURES
from authority.histories import HISTORY_PROCEDURES
from authority.lease_procedures import LEASE_PROCEDURES
from authority.log_alarm import ALARM_PROCEDURES
from authority.placement_procedures import PLACEMENT_PROCEDURES
from authority.recovery_procedures import RECOVERY_PROCEDURES
from authority.rights import RIGHTS_PROCEDURES
from authority.rights_changes import RIGHTS_CHANGES
from authority.rows import Rows
from authority.sole import SOLE_PROCEDURES
from authority.transfer_procedures import TRANSFER_PROCEDURES
from authority.transfer_requests import REQUEST_PROCEDURES

__all__ = ["MACHINE_VERSION", "PROCEDURES"]

MACHINE_VERSION: Final = 12
"""Raise it with every change by which a procedure makes anything else of the same command, also between releases.

Homeservers of different versions do not connect to each other, because their states would differ and nobody be told.
`tests/authority/test_machine_version.py` notices when a source of the procedures was changed.
"""

PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    **ABSENCE_PROCEDURES,
    **ALARM_PROCEDURES,
    **BULK_PROCEDURES,
    **RIGHTS_PROCEDURES,
    **DELETION_PROCEDURES,
    **DIRECTORY_PROCEDURES,
    **DRAIN_PROCEDURES,
    **ENTITY_PROCEDURES,
    **GROUP_PROCEDURES,
    **HIERARCHY_PROCEDURES,
    **HISTORY_PROCEDURES,
    **LEASE_PROCEDURES,
    **PLACEMENT_PROCEDURES,
    **RECOVERY_PROCEDURES,
    **REQUEST_PROCEDURES,
    **RIGHTS_CHANGES,
    **SOLE_PROCEDURES,
    **TRANSFER_PROCEDURES,
}
