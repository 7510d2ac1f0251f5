"""What came together shares a command and a signature; what one of them deserves, no other gets."""

from typing import Any, cast

import pytest
import trio

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.procedures.table import PROCEDURES, transfer_each
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.crypto.verified import Verified
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.group_commit import GroupCommit
from batonpass.tree.raft.submissions import Aborted, NoQuorum
from tests.authority.log import BALL, OTHER, S2, S3, new_log, request
from tests.simserver.ports import TrioClock

HOMESERVER = "alpha.h1"
IDENTITY = Identity.generate()


class Kept:
    """A store of one member, and what was submitted to it."""

    def __init__(self) -> None:
        self.log = new_log()
        self.submitted: list[str] = []
        self.fails: Exception | None = None

    async def submit(self, procedure: str, **args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.submitted.append(procedure)
        if self.fails is not None and procedure == "transfer.each":
            raise self.fails
        if procedure == "transfer.each":
            return transfer_each(self.log.rows, args)
        return PROCEDURES[procedure](self.log.rows, args)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def certification() -> Certification:
    return Certification(Sealer.without_log(HOMESERVER, IDENTITY), cast(Any, None), TrioClock())


async def outcomes(kept: Kept, *steps: dict[str, Any]) -> list[Any]:
    """What each comes to of those who ask together for a commit."""
    commit = GroupCommit(cast(Any, kept))
    found = await commit.submit_all([("transfer.commit", args) for args in steps])
    return [one.reason if isinstance(one, Refused) else one["outcome"] for one in found]


THREE = (
    request("transfer-1"),
    request("transfer-2", entity="alpha.none"),
    request("transfer-3", target=S3, entity=OTHER),
)
DESERVED = ["committed", Reason.NOT_FOUND, "committed"]


async def test_what_is_asked_together_is_one_command_with_a_verdict_for_each(kept: Kept) -> None:
    assert await outcomes(kept, *THREE) == DESERVED
    assert kept.submitted == ["transfer.each"]
    assert (kept.log.rows.entity(BALL).authority, kept.log.rows.entity(OTHER).authority) == (S2, S3)
    assert await outcomes(kept, THREE[0]) == ["committed"]
    assert kept.submitted == ["transfer.each", "transfer.commit"], "alone, and a repetition"


async def test_what_fails_together_is_done_one_by_one(kept: Kept) -> None:
    kept.fails = Aborted("procedure_crashed", "transfer.each raised KeyError")
    assert await outcomes(kept, *THREE) == DESERVED
    assert kept.submitted == ["transfer.each", *["transfer.commit"] * 3]


async def test_where_nothing_is_decided_everybody_hears_it(kept: Kept) -> None:
    kept.fails = NoQuorum("nobody leads")
    with pytest.raises(NoQuorum):
        await outcomes(kept, *THREE)


async def test_certificates_that_are_made_together_share_a_signature(kept: Kept) -> None:
    transfers = []
    for args in (THREE[0], THREE[2]):
        kept.log.run("transfer.commit", **args)
        transfers.append(kept.log.transfer(args["transfer_id"]))
    tokens = certification().commit_all(transfers)
    verified = Verified()
    for transfer, token in zip(transfers, tokens, strict=True):
        claims = jose.verify_untrusted(token, sender=IDENTITY.public, verified=verified)
        assert CommitCertificate.from_claims_untrusted(claims).transfer_id == transfer.id
    assert len(verified) == 1
