"""The load on etcd: the bodies that are sent, and what h2load says of the answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.bench.subject import MeasurementFailed
from batonpass.scenarios.bench.tree.grpc_bodies import grpc_message, put_request, range_request, transaction_of_puts
from batonpass.scenarios.bench.tree.h2load import connections_for, parse_log, parse_summary

SUMMARY = """\
starting benchmark...

finished in 817.42ms, 9786.87 req/s, 625.27KB/s
requests: 8000 total, 8000 started, 8000 done, 8000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 8000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 511.11KB (523374) total, 15.64KB (16012) headers (space savings 94.73%), 257.81KB (264000) data
"""


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """An independent reader of the Protocol Buffers wire format: (number, value) in order."""
    found: list[tuple[int, int | bytes]] = []
    while message:
        tag, message = varint(message)
        number, message = varint(message)
        if tag & 7 == 2:
            found.append((tag >> 3, message[:number]))
            message = message[number:]
        else:
            found.append((tag >> 3, number))
    return found


def varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for position, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, data[position + 1 :]
    raise AssertionError("a varint without an end")


@given(st.binary(min_size=1), st.binary(max_size=400))
def test_a_put_names_key_and_value(key: bytes, value: bytes) -> None:
    assert fields(put_request(key, value)) == [(1, key), (2, value)]


@given(st.binary(min_size=1))
def test_a_range_is_linearizable_unless_it_says_serializable(key: bytes) -> None:
    assert fields(range_request(key, serializable=False)) == [(1, key)]
    assert fields(range_request(key, serializable=True)) == [(1, key), (7, 1)]


@given(st.lists(st.tuples(st.binary(min_size=1), st.binary(max_size=200)), max_size=16))
def test_a_transaction_has_its_puts_in_order(puts: list[tuple[bytes, bytes]]) -> None:
    operations = [operation for number, operation in fields(transaction_of_puts(puts)) if number == 2]
    found = []
    for operation in operations:
        assert isinstance(operation, bytes)
        ((number, put),) = fields(operation)
        assert number == 2
        assert isinstance(put, bytes)
        found.append(tuple(value for _, value in fields(put)))
    assert found == puts


@given(st.binary(max_size=1000))
def test_a_grpc_message_says_that_it_is_not_compressed_and_how_long_it_is(message: bytes) -> None:
    framed = grpc_message(message)
    assert framed[0] == 0
    assert int.from_bytes(framed[1:5], "big") == len(framed[5:]) == len(message)


@given(st.integers(1, 1024))
def test_connections_and_streams_make_up_what_is_outstanding(outstanding: int) -> None:
    connections, streams = connections_for(outstanding)
    assert connections * streams == outstanding


def test_the_summary_of_a_good_run_tells_the_bytes_of_data() -> None:
    assert parse_summary(SUMMARY, 8000) == 264_000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SUMMARY.replace("8000 succeeded, 0 failed", "7999 succeeded, 1 failed"), "only 7999 succeeded"),
        (SUMMARY.replace("8000 2xx, 0 3xx, 0 4xx", "7990 2xx, 0 3xx, 10 4xx"), "only 7990 succeeded"),
        ("h2load: something else", "printed something unknown"),
    ],
)
def test_a_run_with_failures_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(MeasurementFailed, match=sentence):
        parse_summary(text, 8000)


def test_the_log_tells_latencies_and_how_long_it_took_in_all() -> None:
    log = "1000000\t200\t500\n1000100\t200\t3000\n1002000\t200\t700\n"
    run = parse_log(log, 3, 99)
    assert (run.p50_ms, run.p99_ms) == (0.7, 3.0)
    assert run.seconds == pytest.approx(0.0031)
    assert run.data_bytes == 99


def test_a_log_that_lacks_requests_is_refused() -> None:
    with pytest.raises(MeasurementFailed, match="1 of 2"):
        parse_log("1000000\t200\t500\n", 2, 0)
