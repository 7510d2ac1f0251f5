"""Messages of which one before them is missing wait at their sender, however they come."""

from batonpass.simserver.mail.items import MailBudget, MailItem
from batonpass.simserver.mail.received import ReceivedMessages

SENDER, PEER = "alpha.sender", "alpha.s2"
FIRST = MailItem((1, 1), (0, 0), b"first")
SECOND = MailItem((1, 2), (1, 1), b"second")
THIRD = MailItem((1, 3), (1, 2), b"third")
NOW = (1, 0, 7)


def test_what_comes_after_a_gap_is_not_taken_until_the_gap_is_closed() -> None:
    received = ReceivedMessages(MailBudget(1 << 20))

    def offered(*items: MailItem) -> tuple[tuple[int, int], int]:
        reply, new = received.offer(SENDER, items, NOW, NOW, PEER)
        return reply.accepted, new

    assert offered(THIRD) == ((0, 0), 0)
    assert offered(FIRST, THIRD) == ((1, 1), 1)
    assert offered(THIRD) == ((1, 1), 0)
    assert offered(SECOND, THIRD) == ((1, 3), 2)
    assert [message.data for message in received.pending] == [b"first", b"second", b"third"]
