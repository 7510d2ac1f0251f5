"""Identities of events and timelines: 128 bits that follow from what they stand for, equal on all machines.

A name or an input is hashed by SipHash-2-4 twice, with the two pairs of keys of TimeSteward (seed document: timeline).
So both give the same identity to the same bytes. What an event makes is named after that event and counted, by a mixing
function that costs a fiftieth of the hash. Identities decide the order of simultaneous events. They must never be taken
from the network: it is trivial to make two inputs collide. Hash what was proved instead (peer, counter, kind).
"""

from typing import Final, NewType

from batonpass.simserver.sync.lockstep.generator import Xoshiro128

__all__ = [
    "CHILD_MULTIPLIER",
    "CHILD_STEP",
    "CHILD_STEPS",
    "GENESIS_ID",
    "MAX_ID",
    "DeterministicRandomId",
    "child_id",
    "fiat_id",
    "generator_of",
    "id_of",
    "random_id",
    "siphash24",
    "words_of",
]

DeterministicRandomId = NewType("DeterministicRandomId", int)
"""An integer from 0 to 2^128 - 1; word 0 of the two hashes is the more significant one."""

_MASK64: Final = 0xFFFF_FFFF_FFFF_FFFF
_MASK128: Final = (1 << 128) - 1
_FIRST_KEYS: Final = (0xB82A9426FD1A574F, 0x9D9D5B703DCB1BCC)
_SECOND_KEYS: Final = (0x03E0D6037FF980A4, 0x65B790A0825B83BD)
_FIAT_OFFSET: Final = (0xC1D40DAAEE67461D, 0xB23CE1F459EDEFFF)
# Odd, and with as many ones as zeros: the fraction of the golden ratio in 128 bits, and a multiplier of PCG64's family.
CHILD_STEP: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835
CHILD_MULTIPLIER: Final = 0x2360ED051FC65DA44385DF649FCCF645

MAX_ID: Final = DeterministicRandomId(_MASK128)
GENESIS_ID: Final = DeterministicRandomId(0x0BADC0DE << 64 | 0x0BADC0DE)
"""Of what makes the first timelines and predictions, before all events."""


def siphash24(key0: int, key1: int, data: bytes) -> int:
    """Return the SipHash-2-4 of bytes under a key of two words (Aumasson and Bernstein, 2012)."""
    v0, v1 = key0 ^ 0x736F6D6570736575, key1 ^ 0x646F72616E646F6D
    v2, v3 = key0 ^ 0x6C7967656E657261, key1 ^ 0x7465646279746573
    tail = len(data) & ~7
    blocks = [int.from_bytes(data[at : at + 8], "little") for at in range(0, tail, 8)]
    blocks.append(int.from_bytes(data[tail:], "little") | (len(data) & 0xFF) << 56)
    for rounds, block in (*((2, block) for block in blocks), (4, None)):
        if block is None:
            v2 ^= 0xFF
        else:
            v3 ^= block
        for _ in range(rounds):
            v0 = v0 + v1 & _MASK64
            v1 = (v1 << 13 | v1 >> 51) & _MASK64 ^ v0
            v0 = (v0 << 32 | v0 >> 32) & _MASK64
            v2 = v2 + v3 & _MASK64
            v3 = (v3 << 16 | v3 >> 48) & _MASK64 ^ v2
            v0 = v0 + v3 & _MASK64
            v3 = (v3 << 21 | v3 >> 43) & _MASK64 ^ v0
            v2 = v2 + v1 & _MASK64
            v1 = (v1 << 17 | v1 >> 47) & _MASK64 ^ v2
            v2 = (v2 << 32 | v2 >> 32) & _MASK64
        if block is not None:
            v0 ^= block
    return v0 ^ v1 ^ v2 ^ v3


def random_id(data: bytes) -> DeterministicRandomId:
    """Return the identity of bytes."""
    return DeterministicRandomId(siphash24(*_FIRST_KEYS, data) << 64 | siphash24(*_SECOND_KEYS, data))


def id_of(*parts: int | str | bytes) -> DeterministicRandomId:
    """Return the identity of integers, texts and bytes in this order.

    They are written as bincode writes a tuple of them: an integer in 8 bytes, little-endian (below 0 in two's
    complement); a text or bytes after their length. An integer beyond 64 bits, as an identity is, takes 16 bytes, the
    more significant word first.

    Raises:
        OverflowError: an integer is beyond 128 bits.
    """
    return random_id(b"".join(map(_written, parts)))


def words_of(id: int) -> tuple[int, int]:
    """Return the two words of an identity; the first decides the order."""
    return id >> 64, id & _MASK64


def child_id(parent: int, number: int) -> DeterministicRandomId:
    """Return the identity of the `number`th thing, from 0, that the owner of the identity `parent` makes.

    `times.of_child` has the same, without the calls.
    """
    return DeterministicRandomId((parent ^ parent >> 64) * CHILD_MULTIPLIER + (number + 1) * CHILD_STEP & _MASK128)


CHILD_STEPS: Final = tuple([(number + 1) * CHILD_STEP for number in range(64)])
"""For the first things that an event makes: one multiplication less for each."""


def fiat_id(id: int) -> DeterministicRandomId:
    """Return the identity of the fiat event that its sender calls `id`: never that of what is made with `id` itself."""
    high, low = id >> 64, id & _MASK64
    return DeterministicRandomId((high + _FIAT_OFFSET[0] & _MASK64) << 64 | low + _FIAT_OFFSET[1] & _MASK64)


def generator_of(id: int) -> Xoshiro128:
    """Return the generator of an event: its state is the identity, the low half of word 0 first."""
    high, low = words_of(id)
    state = (high & 0xFFFF_FFFF, high >> 32, low & 0xFFFF_FFFF, low >> 32)
    return Xoshiro128(state if any(state) else (1, 0, 0, 0))


def _written(part: int | str | bytes) -> bytes:
    if isinstance(part, int):
        if -(1 << 63) <= part <= _MASK64:
            return (part & _MASK64).to_bytes(8, "little")
        high, low = part >> 64, part & _MASK64
        return high.to_bytes(8, "little") + low.to_bytes(8, "little")
    data = part.encode() if isinstance(part, str) else part
    return len(data).to_bytes(8, "little") + data
