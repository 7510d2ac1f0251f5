"""Every change of the replicated rows, as deterministic procedures over one tree transaction, by name.

Homeservers submit them through the log; each runs on every member in the same order. A procedure that raises `Refused`
leaves the tree untouched.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.batch import BULK_PROCEDURES
from batonpass.authority.procedures.commit import TRANSFER_PROCEDURES
from batonpass.authority.procedures.delete import DELETION_PROCEDURES
from batonpass.authority.procedures.directory import DIRECTORY_PROCEDURES
from batonpass.authority.procedures.drain import DRAIN_PROCEDURES
from batonpass.authority.procedures.entity import ENTITY_PROCEDURES
from batonpass.authority.procedures.failover import RECOVERY_PROCEDURES
from batonpass.authority.procedures.fence_allocation import HISTORY_PROCEDURES
from batonpass.authority.procedures.group_request import GROUP_PROCEDURES
from batonpass.authority.procedures.hierarchy import HIERARCHY_PROCEDURES
from batonpass.authority.procedures.lease import LEASE_PROCEDURES
from batonpass.authority.procedures.log_rollback import ALARM_PROCEDURES
from batonpass.authority.procedures.owner_absence import ABSENCE_PROCEDURES
from batonpass.authority.procedures.placement_pause import PLACEMENT_PROCEDURES
from batonpass.authority.procedures.request import REQUEST_PROCEDURES
from batonpass.authority.procedures.rights import RIGHTS_PROCEDURES
from batonpass.authority.procedures.set_rights import RIGHTS_CHANGES
from batonpass.authority.procedures.single_survivor import SOLE_PROCEDURES

__all__ = ["MACHINE_VERSION", "PROCEDURES"]

MACHINE_VERSION: Final = 12
"""Raise it with every change by which a procedure makes anything else of the same command, also between releases.

Homeservers of different versions do not connect to each other, because their states would differ and nobody be told.
`tests/authority/procedures/test_machine_version.py` notices when a source of the procedures was changed.
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
