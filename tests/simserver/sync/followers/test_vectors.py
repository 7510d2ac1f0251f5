"""`vectors/datagrams.json` has the bytes of docs/reference/followers-protocol.md; this release writes the same.

The first half writes each datagram with `struct`, `hashlib` and `cryptography` alone, from the tables of that page: an
implementation by others begins like this. The second holds ours against the vectors.
"""

import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from batonpass.simserver.sync.followers import datagrams
from batonpass.simserver.sync.followers.datagrams import ShowDatagramKind
from batonpass.simserver.sync.followers.delta import apply_delta_untrusted, delta_of
from batonpass.simserver.sync.followers.frames import head_of_untrusted
from batonpass.simserver.sync.followers.sealing import Ed25519Signing, GroupSeal
from batonpass.simserver.sync.followers.structs import FrameData

VECTORS: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "datagrams.json").read_text())
PAGE: Final = (Path(__file__).parents[4] / "docs" / "reference" / "followers-protocol.md").read_text(encoding="utf-8")
EPOCH: Final[int] = VECTORS["epoch"]
FRAME: Final[int] = VECTORS["frame"]
FOR_ALL: Final = 0x80


def bytes_of(*path: str) -> bytes:
    found: Any = VECTORS
    for name in path:
        found = found[name]
    return bytes.fromhex(found)


# --- an implementation of its own, from the page


def frame_data() -> bytes:
    of = VECTORS["frame_data"]
    return struct.pack(
        "<dddIIII",
        of["t_tracked"],
        of["local_time"],
        of["local_time_delta"],
        of["rate_numerator"],
        of["rate_denominator"],
        of["flags"],
        of["scene"],
    )


def head() -> bytes:
    of = VECTORS["head"]
    digest = hashlib.sha256(bytes.fromhex(of["state"])).digest()[:16]
    numbers = struct.pack("<QQQQQ", of["epoch"], of["frame"], of["previous"], of["base_frame"], of["size"])
    more = struct.pack("<IIIB3x", of["piece_bytes"], of["version"], of["flags"], of["kind"])
    return numbers + more + digest + digest + frame_data()


def signature() -> bytes:
    private = Ed25519PrivateKey.from_private_bytes(bytes_of("signing", "seed"))
    return private.sign(b"batonpass show head 1\0" + head())


def prefix(kind: int, frame: int = FRAME) -> bytes:
    return struct.pack("<BBQQ", 1, kind, EPOCH, frame)


def written() -> dict[str, bytes]:
    """Every datagram of the vectors, from the page alone."""
    state = bytes_of("head", "state")
    names = b"".join(bytes([len(name)]) + name for name in (b"alpha.s3", b"alpha.s4"))
    return {
        "BEGIN": prefix(1 | FOR_ALL) + struct.pack("<QQQI", FRAME - 2, 9, FRAME - 3, 4) + frame_data(),
        "HEAD": prefix(2 | FOR_ALL) + head() + signature() + state[:128],
        "PIECE": prefix(3 | FOR_ALL) + struct.pack("<I", 1) + state[128:],
        "PIECE again": prefix(3) + struct.pack("<I", 1) + state[128:],
        "MISSING": prefix(4) + struct.pack("<IIII", 0, 1, 5, 9),
        "COMPLETE": prefix(5),
        "WAITING": prefix(6) + b"\1",
        "GONE": prefix(7),
        "SURVEY": prefix(8, 0),
        "SURVEY_ANSWER": prefix(9) + head() + signature(),
        "FETCH": prefix(10) + struct.pack("<II", 0, 256),
        "FETCHED": prefix(11) + struct.pack("<IQ", 1, 200) + state[128:],
        "INTERACTION": prefix(12, 5) + struct.pack("<QQ", 0xAABB, 4) + b"click",
        "INTERACTION_ACK": prefix(13, 5) + struct.pack("<Q", 0xAABB),
        "QUIT": prefix(14),
        "LEAVE": prefix(15),
        "APPLY": prefix(16 | FOR_ALL),
        "TREE": prefix(17) + names,
        "DROPPED": prefix(18) + struct.pack("<Q", FRAME + 3) + b"engine",
    }


def test_the_vectors_are_what_the_page_says() -> None:
    assert frame_data() == bytes_of("frame_data", "bytes")
    assert head() == bytes_of("head", "bytes")
    assert signature() == bytes_of("signing", "signature")
    assert written() == {name: bytes.fromhex(each) for name, each in VECTORS["datagrams"].items()}
    assert {name.partition(" ")[0] for name in written()} == {kind.name for kind in ShowDatagramKind}


def test_the_sealed_vector_opens_with_nothing_but_an_aead() -> None:
    sealed, key = bytes_of("sealed", "bytes"), bytes_of("sealed", "key")
    version, sender, epoch, counter = struct.unpack_from("<BIQQ", sealed)
    assert (version, sender, epoch, counter) == (1, VECTORS["sealed"]["sender"], EPOCH, VECTORS["sealed"]["counter"])
    nonce = struct.pack("<IQ", sender, counter)
    assert ChaCha20Poly1305(key).decrypt(nonce, sealed[21:], sealed[:21]) == bytes_of("sealed", "datagram")


def test_the_page_has_each_kind_with_its_number_and_every_size() -> None:
    rows = {name: int(number) for number, name in re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", PAGE, flags=re.MULTILINE)}
    assert rows == {kind.name: int(kind) for kind in ShowDatagramKind}
    assert f"{len(head())} bytes" in PAGE
    assert f"{len(frame_data())} bytes" in PAGE


# --- ours


def test_this_release_writes_the_vectors() -> None:
    read = head_of_untrusted(bytes_of("head", "bytes"))
    assert read is not None
    assert read.pack() == bytes_of("head", "bytes")
    assert FrameData.unpack(bytes_of("frame_data", "bytes")).pack() == bytes_of("frame_data", "bytes")
    state, signing = bytes_of("head", "state"), bytes_of("signing", "signature")
    piece = ShowDatagramKind.PIECE
    assert datagrams.pack_head(read, signing, state[:128], to_all=True) == bytes_of("datagrams", "HEAD")
    assert datagrams.pack_piece(piece, EPOCH, FRAME, 1, state[128:], to_all=True) == bytes_of("datagrams", "PIECE")
    assert datagrams.pack_fetched(EPOCH, FRAME, 1, 200, state[128:]) == bytes_of("datagrams", "FETCHED")
    assert datagrams.pack_interaction(EPOCH, 5, 0xAABB, 4, b"click") == bytes_of("datagrams", "INTERACTION")
    assert datagrams.pack_dropped(EPOCH, FRAME, FRAME + 3, "engine") == bytes_of("datagrams", "DROPPED")
    begin = datagrams.begin_of_untrusted(memoryview(bytes_of("datagrams", "BEGIN"))[18:])
    assert begin is not None
    assert datagrams.pack_begin(EPOCH, FRAME, begin) == bytes_of("datagrams", "BEGIN")
    for name, datagram in VECTORS["datagrams"].items():
        found = datagrams.read_datagram_untrusted(bytes.fromhex(datagram))
        assert found is not None
        again = datagrams.pack_datagram(found.kind, found.epoch, found.frame, found.body, to_all=found.to_all)
        assert (found.kind.name, again.hex()) == (name.partition(" ")[0], datagram)


def test_this_release_signs_seals_and_opens_as_the_vectors() -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes_of("signing", "seed"))
    public = private.public_key().public_bytes_raw()
    assert public == bytes_of("signing", "public")
    signing = Ed25519Signing(private)
    assert signing.sign(bytes_of("head", "bytes")) == bytes_of("signing", "signature")
    assert signing.verifies(public, bytes_of("head", "bytes"), bytes_of("signing", "signature"))
    of = VECTORS["sealed"]
    key, datagram = bytes.fromhex(of["key"]), bytes.fromhex(of["datagram"])
    assert GroupSeal(key, EPOCH, of["sender"]).seal(datagram).hex() == of["bytes"]
    assert GroupSeal(key, EPOCH, 9).open_untrusted(bytes.fromhex(of["bytes"])) == (of["sender"], datagram)


def test_this_release_makes_and_applies_the_change_of_the_vectors() -> None:
    base, state, delta = (bytes_of("delta", name) for name in ("base", "state", "bytes"))
    assert delta_of(base, state) == delta
    assert apply_delta_untrusted(base, delta, 1_000) == state
