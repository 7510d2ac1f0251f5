"""When an acknowledgement leaves at the latest, to the microsecond: real sockets, and a clock that jumps."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from batonpass.actors.link import LinkSettings
from batonpass.actors.net.datagrams import DatagramSocket, Outbound
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.poller import ABSENCE_S
from tests.actors.net.test_endpoint import ALPHA, BETA, receive, serving

PROMISED_S = LinkSettings().max_ack_delay_s


class Departures:
    """When the datagrams of an endpoint leave."""

    def __init__(self, endpoint: LinkEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times_s: list[float] = []
        transmit = endpoint._transmit

        def noted(udp: DatagramSocket, datagrams: Sequence[Outbound]) -> None:
            self.times_s += [trio.current_time()] * len(datagrams)
            transmit(udp, datagrams)

        monkeypatch.setattr(endpoint, "_transmit", noted)


@pytest.mark.parametrize("is_another_waiting", [False, True])
async def test_who_takes_a_message_and_does_something_else_delays_its_acknowledgement_by_a_known_time(
    is_another_waiting: bool, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the peer's probe timeout counts on; so nothing is sent again."""
    delays_s: list[float] = []
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta, trio.open_nursery() as nursery:
        await alpha.send("beta.s1", beta.address, b"open")
        await receive(beta)
        await trio.sleep(1)
        departures = Departures(beta, monkeypatch)
        other = beta.claim(7)
        if is_another_waiting:
            nursery.start_soon(other.receive)
        for pause_s in (0.0, 0.001, 0.004, 0.009, 0.0099, 0.011, 0.5):
            nursery.start_soon(receive, beta)  # waits, gets it, and is gone
            await trio.testing.wait_all_tasks_blocked()
            departures.times_s.clear()
            sent_s = trio.current_time()
            await alpha.send("beta.s1", beta.address, b"and no answer")
            await trio.sleep(PROMISED_S)
            assert alpha.backlog("beta.s1").messages == 0
            delays_s.append(departures.times_s[0] - sent_s)
            await trio.sleep(pause_s)
        assert alpha.stats.get("retransmissions", 0) == 0
        nursery.cancel_scope.cancel()
    assert max(delays_s) == pytest.approx(ABSENCE_S, abs=1e-6)
