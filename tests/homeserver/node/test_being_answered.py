"""Over the link a request is repeated while it is worked on; it is worked on once."""

from typing import Any

import pytest

from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import HandoffRequest, OwnerRequest
from batonpass.homeserver.node.dispatch import BeingAnswered
from tests.homeserver.rest.test_server_routes import handoff


def came(message: Any, sender: str = "alpha.s1") -> OpenedMessage:
    return OpenedMessage(message, sender, Trace("transfer-1"))


def test_a_repetition_of_what_is_being_answered_is_left_out_and_of_what_was_answered_is_not() -> None:
    answering, first, second = BeingAnswered(), came(handoff()), came(handoff(transfer_id="transfer-2"))
    with answering.those_of([first]) as new:
        assert new == [first]
        with answering.those_of([first, second]) as others:
            assert others == [second]
        with answering.those_of([second]) as again:
            assert again == [second]
    with answering.those_of([first]) as new:
        assert new == [first]


def test_what_one_server_asks_takes_nothing_from_another_nor_from_other_questions() -> None:
    answering, request = BeingAnswered(), handoff()
    other, owner = came(request, "alpha.s2"), came(OwnerRequest(entity=request.entity))
    with answering.those_of([came(request), owner]), answering.those_of([other, owner]) as new:
        assert new == [other, owner]


def test_whatever_goes_wrong_with_it_it_can_be_asked_again() -> None:
    answering, request = BeingAnswered(), came(handoff())
    with pytest.raises(OSError, match="no quorum"), answering.those_of([request]):
        raise OSError("no quorum")
    with answering.those_of([request]) as new:
        assert isinstance(new[0].message, HandoffRequest)
