"""A large state is not sent again while the link still has it, or the receiver reads it."""

from batonpass.simserver.net import in_flight as under_way
from batonpass.simserver.net.in_flight import InFlightStates

PEER = "alpha.s2"
MIB = 1024 * 1024
S = 1_000_000_000


class Link:
    """What a peer has not acknowledged."""

    def __init__(self) -> None:
        self.backlog_bytes = 0
        self.under_way = InFlightStates(lambda peer: self.backlog_bytes if peer == PEER else 0)

    def post(self, size_bytes: int) -> None:
        self.backlog_bytes += size_bytes
        self.under_way.count(PEER, size_bytes)

    def state(self, transfer_id: str, size_bytes: int) -> None:
        self.under_way.begin(transfer_id, PEER, size_bytes)
        self.post(size_bytes)
        self.under_way.posted(transfer_id, PEER, is_lost=False)


def test_a_state_is_under_way_until_it_is_acknowledged_and_could_be_read() -> None:
    link = Link()
    assert not link.under_way.is_under_way("transfer-1", PEER, 0)
    link.post(100)
    link.under_way.begin("transfer-1", PEER, 16 * MIB)
    assert link.under_way.is_under_way("transfer-1", PEER, 1000 * S)
    link.state("transfer-1", 16 * MIB)
    link.state("transfer-2", 32 * MIB)
    link.post(50)
    assert not link.under_way.is_under_way("transfer-1", "alpha.s3", 0)
    steps = ((16 * MIB, 10.0, 1, 1), (100, 20.0, 1, 1), (0, 21.9, 1, 1), (32 * MIB, 22.1, 0, 1), (0, 25.2, 0, 0))
    for acknowledged, now_s, first, second in steps:
        link.backlog_bytes -= acknowledged
        now_ns = round(now_s * S)
        assert link.under_way.is_under_way("transfer-1", PEER, now_ns) == first
        assert link.under_way.is_under_way("transfer-2", PEER, now_ns) == second


def test_what_the_link_dropped_may_be_sent_again() -> None:
    link = Link()
    link.state("transfer-1", 1000)
    link.backlog_bytes = 0  # it has given the peer up, or been restarted
    assert link.under_way.is_under_way("transfer-1", PEER, 0)
    assert not link.under_way.is_under_way("transfer-1", PEER, 2 * S)


def test_what_could_not_be_posted_may_be_sent_again() -> None:
    link = Link()
    link.under_way.begin("transfer-1", PEER, 1000)
    link.under_way.posted("transfer-1", PEER, is_lost=True)
    link.under_way.posted("transfer-3", PEER, is_lost=True)
    assert not link.under_way.is_under_way("transfer-1", PEER, 0)
    link.under_way.begin("transfer-2", PEER, 1000)
    link.under_way.forget()
    assert not link.under_way.is_under_way("transfer-2", PEER, 0)


def test_what_is_remembered_is_bounded() -> None:
    link = Link()
    for number in range(under_way.MAX_STATES + 10):
        link.state(f"transfer-{number}", 1)
    assert len(link.under_way._states) == under_way.MAX_STATES
    for number in range(under_way.MAX_PEERS + 10):
        link.under_way.count(f"alpha.s{number}", 1)
    assert len(link.under_way._posted_bytes) <= under_way.MAX_PEERS
    assert not link.under_way._states, "how far the states of a forgotten peer reach is not known"
    assert link.under_way.posted_bytes("alpha.s11") == 1, "but of no other"
