"""Requests to etcd as gRPC bodies, written by hand: a prepared body is all that a load generator needs. Pure.

Field numbers are those of etcd's rpc.proto (https://github.com/etcd-io/etcd, etcdserver/etcdserverpb/rpc.proto, 3.4):
PutRequest{1 key, 2 value}, RangeRequest{1 key, 7 serializable}, TxnRequest{2 success}, RequestOp{2 request_put}. The
wire format is that of Protocol Buffers; a gRPC message has five bytes before it: not compressed, and its length.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["grpc_message", "put_request", "range_request", "transaction_of_puts"]

_LENGTH_DELIMITED: Final = 2
_VARINT: Final = 0


def grpc_message(message: bytes) -> bytes:
    """A message with its prefix, as it stands in an HTTP/2 DATA frame."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def put_request(key: bytes, value: bytes) -> bytes:
    """PutRequest: set one key."""
    return _bytes_field(1, key) + _bytes_field(2, value)


def range_request(key: bytes, *, serializable: bool) -> bytes:
    """RangeRequest: read one key; linearizable unless `serializable`, which is etcd's word for a local read."""
    return _bytes_field(1, key) + (_varint(7 << 3 | _VARINT) + _varint(1) if serializable else b"")


def transaction_of_puts(puts: Iterable[tuple[bytes, bytes]]) -> bytes:
    """TxnRequest without conditions: all puts as one. Keys must differ, or etcd refuses it."""
    return b"".join(_bytes_field(2, _bytes_field(2, put_request(key, value))) for key, value in puts)


def _bytes_field(number: int, contents: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(contents)) + contents


def _varint(value: int) -> bytes:
    """Base 128, least significant group first, the high bit saying that more follows."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
