"""One line about each peer whose messages are dropped, however many they are and whatever is in them."""

import logging

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.node.config import INTERVAL_NS, MAX_AUDITED, MAX_REASON, RejectedPeers


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "batonpass.audit"]


def test_failures_row_17_a_flood_of_one_peer_is_a_line_a_minute_that_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = RejectedPeers()
    for number in range(1000):
        audit.dropped("alpha.mallory", MessageError("it expired"), number)
    assert audit.dropped("alpha.eve", MessageError("it expired"), 1000), "another peer's are told at once"
    audit.dropped("alpha.mallory", MessageError("it does not open"), INTERVAL_NS)
    assert lines(caplog) == [
        "audit: event=message_dropped peer=alpha.mallory reason='it expired' unlogged_before=0",
        "audit: event=message_dropped peer=alpha.eve reason='it expired' unlogged_before=0",
        "audit: event=message_dropped peer=alpha.mallory reason='it does not open' unlogged_before=999",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_what_a_peer_chose_makes_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    RejectedPeers().dropped("alpha.mallory", MessageError("no\naudit: event=all_is_well\x1b[2J" + "x" * 10_000), 0)
    (line,) = lines(caplog)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < MAX_REASON + 100


def test_a_bounded_number_of_peers_is_remembered() -> None:
    audit = RejectedPeers()
    assert all(audit.dropped(f"alpha.p{number}", MessageError("no"), 0) for number in range(MAX_AUDITED + 1))
    assert audit.dropped("alpha.p0", MessageError("no"), 1), "the one with the oldest line is forgotten"
    assert not audit.dropped(f"alpha.p{MAX_AUDITED}", MessageError("no"), 1)
