"""A log of one member for specifications of procedures: it runs them, or not at all, and knows some names."""

from typing import Any, Final

import pytest

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import Role, TransferRecord
from batonpass.authority.procedures.lease import find_lease
from batonpass.authority.procedures.table import PROCEDURES
from tests.authority.rows import DictRows, directory_row

BALL: Final = "alpha.ball"
OTHER: Final = "alpha.other"
ADA: Final = "alpha.ada"
BOB: Final = "alpha.bob"
S1: Final = "alpha.s1"
S2: Final = "alpha.s2"
S3: Final = "alpha.s3"
HOMESERVER: Final = "alpha.h1"
FAR: Final = "beta.s1"


class Log:
    """Rows, and the procedures run on them by name."""

    def __init__(self) -> None:
        self.rows = DictRows()

    def run(self, procedure: str, **args: Any) -> Any:
        before = dict(self.rows.data)
        try:
            return PROCEDURES[procedure](self.rows, args)
        except Refused:
            assert self.rows.data == before, "a refusal leaves the tree untouched"
            raise

    def refuses(self, reason: Reason, procedure: str, /, **args: Any) -> Refused:
        """Run a procedure that is refused for this reason."""
        with pytest.raises(Refused) as caught:
            self.run(procedure, **args)
        assert caught.value.reason is reason
        return caught.value

    def transfer(self, transfer_id: str) -> TransferRecord:
        transfer = self.rows.transfer(transfer_id)
        assert transfer is not None
        return transfer

    # --- short forms -----------------------------------------------------------------------------------------------

    def propose(self, transfer_id: str = "transfer-1", target: str = S2, **args: Any) -> Any:
        return self.run("transfer.propose", transfer_id=transfer_id, target=target, **{"entity": BALL, **args})

    def swept(self, server: str) -> Any:
        """Whoever grants leases has looked, and nothing is left of what earlier incarnations had."""
        row = find_lease(self.rows, server)
        assert row is not None
        return self.run("lease.swept", server=server, incarnation=row.incarnation, late=row.late, phase=row.phase.value)

    def commit(self, transfer_id: str = "transfer-1", target: str = S2, **args: Any) -> Any:
        return self.run("transfer.commit", **request(transfer_id, target, **args))


def request(transfer_id: str = "transfer-1", target: str = S2, **args: Any) -> dict[str, Any]:
    """A request to hand the ball over, as its first holder makes it."""
    fields = {"entity": BALL, "source": S1, "epoch": 1, "sub": 0, "tick": 7, "state_hash": "0" * 64}
    return {"transfer_id": transfer_id, "target": target, **fields, **args}


def passing(sub: int, source: str, target: str, **changes: Any) -> dict[str, Any]:
    """A verified direct pass, as the caller hands it to procedures."""
    fields = {"entity": BALL, "epoch": 1, "tick": sub, "state_hash": "0" * 64, "transfer_id": f"transfer-p{sub}"}
    return {"sub": sub, "source": source, "target": target, **fields, **changes}


def new_log(rule: str = "ask") -> Log:
    """Three simulation servers, one homeserver, and Ada's ball and other thing on the first server."""
    log = Log()
    for name in (S1, S2, S3):
        log.run("directory.register", row=directory_row(name).to_data())
    log.run("directory.register", row=directory_row(HOMESERVER, Role.HOMESERVER).to_data())
    for entity in (BALL, OTHER):
        log.run("entity.create", entity=entity, kind="ball", spawner=ADA, server=S1, rule=rule)
    return log
