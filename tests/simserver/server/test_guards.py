"""A guard that a composition forgets is closed: it cannot be left out, or says no by itself."""

import inspect
from typing import Any

import httpx
import pytest

from batonpass.actors.http.client import HttpClient
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import Passed
from batonpass.crypto.keys import Identity
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.failover.foreign_entities import Visitors
from batonpass.simserver.net.home_client import Home, HomeUnreachable
from batonpass.simserver.transfer.source.admission import Reception
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.source.waiting_for_home import HomeAwaited
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.staged_outcome import Inquiries
from batonpass.simserver.transfer.target.unresolved import LooseEnds
from tests.simserver.transfer.source.test_departures import TrioClock

GUARDS = {"may_act", "may_ask", "home_answers", "incarnation", "is_drained", "is_lost_by", "keeps_copies"}


@pytest.mark.parametrize(
    "guarded",
    [Arrivals, Departures, EntityEnvironment, HomeAwaited, Inquiries, LooseEnds, Reception, Visitors],
)
def test_a_guard_cannot_be_left_out(guarded: type) -> None:
    parameters = inspect.signature(guarded).parameters
    guards = GUARDS & parameters.keys()
    assert guards
    assert {name for name in guards if parameters[name].default is not inspect.Parameter.empty} == set()


async def test_a_home_of_which_nobody_says_whether_there_is_a_lease_is_asked_for_nothing_else() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was asked")

    client = HttpClient(transport=httpx.MockTransport(answer))
    home = Home(Sealer("alpha.s1", Identity.generate()), "alpha", ("http://h",), b"t" * 32, client, TrioClock())
    message: Any = Passed.model_construct(type="passed", entity="alpha.ball", transfer_id="t")
    with pytest.raises(HomeUnreachable, match="nobody has said yet whether this server has a lease"):
        await home.ask(message, Trace("t"), on_path=False)
    await client.aclose()
