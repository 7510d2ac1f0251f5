"""The table of bounds in docs/reference/protocol-link.md: every row has its reason, and the numbers of the code."""

import re
from pathlib import Path

import pytest

from batonpass.actors.link import arrivals, gate, large, path, ranges, sessions, strangers, unfinished
from batonpass.actors.link.frames import (
    HEADER_BYTES,
    MAX_ACK_RANGES,
    MAX_CONTENT_FRAMES,
    MAX_CONTROL_FRAMES,
    MAX_FRAMES,
    MIN_PIECE_BYTES,
)
from batonpass.actors.link.settings import (
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    KERNEL_DATAGRAM_BYTES,
    LARGE_MESSAGE_BYTES,
    MAX_DATAGRAM_BYTES,
    MAX_MESSAGE_BYTES,
    MIN_DATAGRAM_BYTES,
    RESERVED_CREDIT_BYTES,
    SMALL_MESSAGE_BYTES,
    UNORDERED_AHEAD,
    LinkSettings,
)
from batonpass.actors.net import endpoint as udp
from batonpass.actors.net import handshake_admission as admission
from batonpass.actors.net import link_table, peer_keys, poller
from batonpass.actors.net.datagrams import ARRIVALS
from batonpass.crypto import session
from batonpass.crypto.replay import WINDOW

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "reference" / "protocol-link.md"
SETTINGS = LinkSettings()


def _mib(size_bytes: int) -> str:
    whole, rest = divmod(size_bytes, 1024 * 1024)
    assert rest == 0
    return f"{whole} MiB"


def _table() -> dict[str, tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Bounds\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {name: (value, reason) for name, value, reason in rows[2:]}


# Bound: what its value must say, out of the code.
EXPECTED: dict[str, list[str]] = {
    "message": [_mib(MAX_MESSAGE_BYTES)],
    "message charged to the credit": [_mib(LARGE_MESSAGE_BYTES)],
    "large messages of one peer, granted and not taken": ["1"],
    "large messages of an endpoint, granted and not taken": [_mib(large.DEFAULT_BUDGET_BYTES)],
    "a grant that others wait for": [
        f"{large.STALL_S:.0f} s without a new piece",
        f"at {large.MIN_BYTES_PER_S // 1024} KiB/s",
    ],
    "how far pieces of a large message run ahead of the first missing one": [_mib(large.REACH_BYTES)],
    "how far an unordered channel runs ahead of the first message missing": [f"{UNORDERED_AHEAD} messages"],
    "datagram": [f"{MIN_DATAGRAM_BYTES} bytes", f"{MAX_DATAGRAM_BYTES:,} where"],
    "piece, except the last": [f"at least {MIN_PIECE_BYTES} bytes"],
    "credit window per peer": [_mib(SETTINGS.window_bytes), f"{SETTINGS.window_messages} messages"],
    f"credit that messages above {SMALL_MESSAGE_BYTES // 1024} KiB leave free": [
        f"{RESERVED_CREDIT_BYTES // 1024} KiB"
    ],
    "credit before the first ACK": [f"{INITIAL_CREDIT_BYTES // 1024} KiB", f"{INITIAL_CREDIT_MESSAGES} messages"],
    "unfinished messages of an endpoint": [
        _mib(unfinished.DEFAULT_BUDGET_BYTES),
        f"{unfinished.OWN_BYTES // 1024} KiB of each peer",
    ],
    "unfinished messages that others wait for": [
        f"{unfinished.LATE_S:.0f} s",
        f"every {unfinished._JUDGE_INTERVAL_S:.0f} s",
        f"within {unfinished._PATIENCE_S:.0f} s",
    ],
    "what all lives of a peer may leave untaken": ["the window and one initial credit"],
    "queue per peer": [_mib(SETTINGS.queue_bytes), f"{SETTINGS.queue_messages:,} messages"],
    "in flight per peer": [_mib(SETTINGS.max_flight_bytes), f"{KERNEL_DATAGRAM_BYTES} bytes per datagram"],
    "frames in a datagram": [f"{MAX_FRAMES}: at most {MAX_CONTROL_FRAMES} that are neither", "1 ACK"],
    "reading what has arrived, before others get their turn": [
        f"{udp._BATCH_DATAGRAMS} times",
        f"{udp._TURN_S * 1000:.0f} ms",
        f"every {ARRIVALS} times while they take less than {udp._CHEAP_S * 1000:.1f} ms",
    ],
    "ranges in an ACK / remembered": [f"{MAX_ACK_RANGES} / {ranges.MAX_RANGES}"],
    "replay window": [f"{WINDOW:,} counters"],
    "half-open handshakes per peer": [
        f"{sessions.MAX_HALF_OPEN}, {sessions.MAX_HALF_OPEN // 2} of them",
        f"for {SETTINGS.retire_after_s:.0f} s",
    ],
    "HELLOs answered per peer": [
        f"burst of {sessions.HANDSHAKE_BURST:.0f}",
        f"{sessions.HANDSHAKES_PER_S:.0f} per second",
    ],
    "HELLOs because of COOKIEs": ["one for each"],
    "answers to repeated CONFIRMs": [f"1 per {sessions._CONFIRM_ANSWER_INTERVAL_S:g} s"],
    "sessions per peer": [str(sessions.MAX_SESSIONS)],
    "HELLOs answered per endpoint": [
        f"burst of {admission._HANDSHAKE_BURST:.0f}",
        f"{admission._HANDSHAKES_PER_S:.0f} per second",
    ],
    "directory look-ups because of strangers' HELLOs": [
        f"{strangers.MAX_LOOKUPS} at a time",
        f"without a cookie {strangers.MAX_LOOKUPS // 2}",
        f"burst of {strangers.LOOKUP_BURST:.0f} and {strangers.LOOKUPS_PER_S:.0f} per second",
        f"{strangers.MAX_LOOKUPS_PER_SOURCE} for each IPv4 address",
        f"burst of {strangers.SOURCE_LOOKUP_BURST:.0f} and {strangers.SOURCE_LOOKUPS_PER_S:.0f} per second",
        f"{strangers.MAX_SOURCES} such places",
    ],
    "names of strangers": [
        f"{strangers.MAX_KNOWN} with their keys for {strangers.KNOWN_FOR_S:.0f} s",
        f"{peer_keys.MAX_UNKNOWN_NAMES} that are unknown for {peer_keys.LOOKUP_INTERVAL_S:.0f} s",
    ],
    "look-ups per peer": [f"1 per {peer_keys.LOOKUP_INTERVAL_S:.0f} s", f"every {peer_keys.KEYS_REFRESH_S:.0f} s"],
    "HELLOs because the application says that a peer is elsewhere": [f"1 per {SETTINGS.move_interval_s:.0f} s"],
    "peers per endpoint": [
        f"{link_table._MAX_LINKS}, from {link_table._CROWDED_LINKS} on",
        f"{SETTINGS.retire_after_s:.0f} s",
    ],
    "datagrams waiting for the kernel": [str(udp._MAX_BACKLOG_DATAGRAMS)],
    "datagrams per session": [
        f"2^{SETTINGS.rekey_after_datagrams.bit_length() - 1},",
        f"2^{SETTINGS.max_session_datagrams.bit_length() - 1},",
    ],
    "age of a session in use": [f"{SETTINGS.rekey_after_s:.0f} s"],
    "answer to a HELLO": [
        f"{HEADER_BYTES + session._ACCEPT_BYTES} bytes for {HEADER_BYTES + session.HELLO_BYTES}",
    ],
    "bytes to an address that has not answered": [f"{path.AMPLIFICATION} times"],
    "addresses asked at a time, per peer": [f"none for {path.PAUSE_S:.0f} s"],
    "answers to CHALLENGEs in a datagram": ["1"],
}


def test_every_bound_is_in_the_table_and_every_row_is_tested() -> None:
    assert set(_table()) == set(EXPECTED)


@pytest.mark.parametrize("bound", EXPECTED)
def test_a_bound_is_what_the_code_says_and_has_its_reason(bound: str) -> None:
    value, reason = _table()[bound]
    for part in EXPECTED[bound]:
        assert part in value
    assert len(reason) > 10, "a bound without a reason"


def test_periods_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{MAX_CONTENT_FRAMES} messages and pieces" in text
    assert f"{gate.COOKIE_EPOCH_S:.0f}-second epoch" in text
    assert f"after {SETTINGS.ack_delay_s * 1000:.0f} ms when nothing else" in text
    assert f"until {poller.ABSENCE_S * 1000:.0f} ms have passed" in text
    assert f"counts on {SETTINGS.max_ack_delay_s * 1000:.0f} ms" in text
    assert SETTINGS.max_ack_delay_s >= poller.ABSENCE_S + 0.0011  # trio wakes that late
    assert f"{arrivals._ACK_EVERY_DATAGRAMS} datagrams or an eighth" in text
    silence = PAGE.read_text(encoding="utf-8").partition("\n## Silence\n")[2].partition("\n## ")[0]
    for period_s in (
        SETTINGS.reopen_after_s,
        SETTINGS.unreachable_after_s,
        SETTINGS.give_up_after_s,
        SETTINGS.idle_expiry_s,
    ):
        assert re.search(rf"\b{period_s:g} s\b", silence), period_s
