"""What a sender may not say to a homeserver changes nothing there and has no answer: see `wire.test_senders`."""

from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import OwnerRequest, Renew
from tests.authority.log import ADA, BALL
from tests.authority.message_strategies import TRANSFER_KINDS, of_kind
from tests.authority.rows import directory_row
from tests.authority.wire.test_senders import HOMESERVER, SENDERS, Directory, example
from tests.budget import examples
from tests.homeserver.batched import Home as BatchHome
from tests.homeserver.batched import log_of_three

ROLES = dict(SENDERS.values())


class TrialHome(BatchHome):
    """A homeserver, built as it is shipped, that knows the senders alone."""

    def __init__(self) -> None:
        super().__init__(log_of_three())
        self.kept.confirmed = trio.lowlevel.checkpoint  # type: ignore[attr-defined]
        self.kept.row = lambda name: directory_row(name, role) if (role := ROLES.get(name)) else None  # type: ignore[attr-defined]
        self.directory.row = Directory().row  # type: ignore[method-assign]
        self.dropped: list[str] = []

    async def take(self, message: Any, sender: str) -> None:
        opened = OpenedMessage(message, sender, Trace("transfer-1"))
        if isinstance(message, Renew):
            await self.parts.leases.renewed(opened)
        elif not self.parts.took(opened, self.dropped.append):
            await self.parts.transfers.reply(opened)

    @property
    def nothing_happened(self) -> bool:
        return not (self.kept.submitted or self.sent or self.asked_far or self.dropped)


@pytest.mark.parametrize("kind", TRANSFER_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=examples(2, 2), deadline=None)
async def test_what_a_sender_may_not_say_changes_nothing(kind: type[BaseModel], data: st.DataObject) -> None:
    message = example(HOMESERVER_SENDERS, kind, data.draw(of_kind(kind)))
    for sender in SENDERS.keys() - HOMESERVER.get(kind, set()):
        home = TrialHome()
        with pytest.raises(MessageError):
            await home.take(message, SENDERS[sender][0])
        assert home.nothing_happened, sender


async def test_an_owner_is_called_silent_by_the_authority_or_its_home_alone() -> None:
    """Who asks for an owner may be any server; the one that is heard of the owner's silence is the one that has it."""
    home = TrialHome()
    await home.kept.submit("entity.change_rights", entity=BALL, by=ADA, master_rev=1, owner_timeout_s=1)
    request = OwnerRequest(entity=BALL, owner_rev=1, silent_s=5)
    home.kept.submitted.clear()
    with pytest.raises(MessageError, match="does not speak for"):
        await home.take(request, "alpha.s2")
    assert home.kept.submitted == []
