"""A second reader of the link protocol, written from docs/reference/protocol-link.md alone.

It shares no code with `actors.link` and `crypto`: only SHA-256, BLAKE2s and the primitives of the `cryptography`
package. Given what a wiretap saw, both servers' public keys and one ephemeral private key, it checks and reads
everything. Where it and the endpoint differ, the document, the endpoint or this file is wrong, and the recorded vectors
tell.
"""

import base64
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HELLO, ACCEPT, CONFIRM, DATA, COOKIE = 1, 2, 3, 4, 5
KIND_NAMES = {HELLO: "hello", ACCEPT: "accept", CONFIRM: "confirm", DATA: "data", COOKIE: "cookie"}
HEADER_BYTES, MAC_BYTES, TAG_BYTES, POINT_BYTES, SIGNATURE_BYTES = 16, 16, 16, 65, 64
HELLO_BYTES, ACCEPT_BYTES, CONFIRM_BYTES, COOKIE_BYTES = 1200, 174, 97, 32
CORE_BYTES = 1104
MAC_LABEL = b"batonpass link hello 1"


class NotOfTheProtocol(Exception):
    """These bytes are not what the document describes."""


def need(condition: bool, sentence: str) -> None:
    """Raise NotOfTheProtocol with `sentence` unless the condition holds."""
    if not condition:
        raise NotOfTheProtocol(sentence)


@dataclass(frozen=True)
class PublicKeys:
    """What the directory says of one server."""

    name: str
    signing: ec.EllipticCurvePublicKey
    agreement: ec.EllipticCurvePublicKey

    def key_ids(self) -> bytes:
        """The key ids of both keys, 43 characters each, the signing key's first."""
        return thumbprint(self.signing) + thumbprint(self.agreement)


def thumbprint(key: ec.EllipticCurvePublicKey) -> bytes:
    """RFC 7638, section 3: SHA-256 of the required members in lexical order, without blanks; as base64url text."""
    numbers = key.public_numbers()
    x, y = (
        base64.urlsafe_b64encode(n.to_bytes(32, "big")).rstrip(b"=").decode("ascii") for n in (numbers.x, numbers.y)
    )
    members = json.dumps({"crv": "P-256", "kty": "EC", "x": x, "y": y}, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(members.encode("ascii")).digest()).rstrip(b"=")


def verify(key: ec.EllipticCurvePublicKey, message: bytes, signature: bytes) -> None:
    """ES256 (RFC 7518, section 3.4): r and s, 32 bytes each, big-endian."""
    r, s = (int.from_bytes(signature[i : i + 32], "big") for i in (0, 32))
    try:
        key.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise NotOfTheProtocol("the signature does not fit") from None


@dataclass(frozen=True)
class Datagram:
    """One datagram with its header taken apart."""

    kind: int
    session: int
    counter: int
    header: bytes
    body: bytes


def split(datagram: bytes) -> Datagram:
    """Take the header off."""
    need(len(datagram) >= HEADER_BYTES, "shorter than a header")
    kind, zeros, session, counter = struct.unpack("<B3sIQ", datagram[:HEADER_BYTES])
    need(kind in KIND_NAMES, "unknown kind")
    need(zeros == bytes(3), "the three bytes behind the kind are not zero")
    return Datagram(kind, session, counter, datagram[:HEADER_BYTES], datagram[HEADER_BYTES:])


class Fields:
    """Reads fields off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        need(self.at + size <= len(self.data), "ends in the middle of a field")
        piece = self.data[self.at : self.at + size]
        self.at += size
        return piece

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def name(self) -> str:
        raw = self.take(self.unsigned(1))
        need(1 <= len(raw) <= 128 and all(0x21 <= byte <= 0x7E for byte in raw), "not a name")
        return raw.decode("ascii")

    @property
    def left(self) -> int:
        return len(self.data) - self.at


@dataclass(frozen=True)
class Hello:
    """What a HELLO says."""

    session: int
    incarnation: int
    generation: int
    ephemeral: bytes
    initiator: str
    responder: str
    body: bytes

    def as_json(self) -> dict[str, Any]:
        """For comparison with a recording."""
        return {
            "session": self.session,
            "incarnation": self.incarnation,
            "generation": self.generation,
            "initiator": self.initiator,
            "responder": self.responder,
        }


def read_hello(datagram: Datagram, responder: PublicKeys) -> Hello:
    """Check the MAC, then read."""
    need(len(datagram.header) + len(datagram.body) == HELLO_BYTES, "a HELLO of another length")
    need(datagram.session == 0, "a HELLO with a session id in its header")
    key = hashlib.blake2s(MAC_LABEL + responder.key_ids()).digest()
    mac = hashlib.blake2s(datagram.body[:-MAC_BYTES], key=key, digest_size=MAC_BYTES).digest()
    need(mac == datagram.body[-MAC_BYTES:], "the MAC of the HELLO does not fit")
    fields = Fields(datagram.body[:CORE_BYTES])
    need(fields.unsigned(1) == 1, "another version")
    session, incarnation, generation = fields.unsigned(4), fields.unsigned(8), fields.unsigned(4)
    ephemeral, initiator, responder_name = fields.take(POINT_BYTES), fields.name(), fields.name()
    need(fields.take(fields.left).strip(b"\0") == b"", "padding that is not zero")
    need(responder_name == responder.name, "a HELLO for somebody else")
    return Hello(session, incarnation, generation, ephemeral, initiator, responder_name, datagram.body)


@dataclass(frozen=True)
class Directions:
    """The four secrets of a session."""

    key_of_initiator: bytes
    key_of_responder: bytes
    salt_of_initiator: bytes
    salt_of_responder: bytes


@dataclass(frozen=True)
class Handshake:
    """One finished handshake, as a wiretap with the initiator's ephemeral private key sees it."""

    hello: Hello
    session_of_responder: int
    incarnation_of_responder: int
    secrets: Directions


def read_handshake(
    hello: Hello,
    accept: Datagram,
    confirm: Datagram | None,
    ephemeral_of_initiator: ec.EllipticCurvePrivateKey,
    static: bytes,
    initiator: PublicKeys,
    responder: PublicKeys,
) -> Handshake:
    """Verify both signatures, and the MACs under the static secret, and derive the keys."""
    need(len(accept.header) + len(accept.body) == ACCEPT_BYTES, "an ACCEPT of another length")
    need(accept.session == hello.session and accept.counter == 0, "an ACCEPT for another session")
    fields = Fields(accept.body)
    need(fields.unsigned(1) == 1, "another version")
    session, incarnation, ephemeral = fields.unsigned(4), fields.unsigned(8), fields.take(POINT_BYTES)
    signature, proof = fields.take(SIGNATURE_BYTES), fields.take(MAC_BYTES)
    said = hello.body[:CORE_BYTES] + accept.body[: -SIGNATURE_BYTES - MAC_BYTES]
    transcript = hashlib.sha256(said + initiator.key_ids() + responder.key_ids()).digest()
    need(proof == static_mac(static, bytes([ACCEPT]) + transcript + signature), "the MAC of the ACCEPT does not fit")
    verify(responder.signing, b"\0batonpass link accept 1\0" + transcript, signature)
    if confirm is not None:
        need(len(confirm.header) + len(confirm.body) == CONFIRM_BYTES, "a CONFIRM of another length")
        need(confirm.session == session and confirm.counter == 0, "a CONFIRM for another session")
        need(confirm.body[0] == 1, "another version")
        digest = hashlib.sha256(transcript + signature).digest()
        signed, proof = confirm.body[1:-MAC_BYTES], confirm.body[-MAC_BYTES:]
        need(proof == static_mac(static, bytes([CONFIRM]) + digest + signed), "the MAC of the CONFIRM does not fit")
        verify(initiator.signing, b"\0batonpass link confirm 1\0" + digest, signed)
    peer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), ephemeral)
    shared = ephemeral_of_initiator.exchange(ec.ECDH(), peer)
    derived = HKDF(hashes.SHA256(), length=40, salt=transcript, info=b"batonpass link keys 1").derive(shared)
    secrets = Directions(derived[:16], derived[16:32], derived[32:36], derived[36:40])
    return Handshake(hello, session, incarnation, secrets)


def static_secret(ours: ec.EllipticCurvePrivateKey, initiator: PublicKeys, responder: PublicKeys) -> bytes:
    """The key of the MACs of handshakes between these two, given the private agreement key of one of them."""
    is_initiator = thumbprint(ours.public_key()) == thumbprint(initiator.agreement)
    shared = ours.exchange(ec.ECDH(), (responder if is_initiator else initiator).agreement)
    label = b"batonpass link static 1" + initiator.key_ids() + responder.key_ids()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=label).derive(shared)


def static_mac(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE2s."""
    return hashlib.blake2s(data, key=key, digest_size=MAC_BYTES).digest()


def check_proofs(hello: Hello, cookie: bytes, static: bytes) -> None:
    """One of the four places has the MAC of the generation of keys that is known."""
    proofs = hello.body[CORE_BYTES:-MAC_BYTES]
    wanted = static_mac(static, bytes([HELLO]) + cookie + hello.body[:CORE_BYTES])
    need(wanted in [proofs[at : at + MAC_BYTES] for at in range(0, 64, MAC_BYTES)], "a HELLO of somebody else")


def open_data(datagram: Datagram, key: bytes, salt: bytes) -> bytes:
    """AES-128-GCM; the nonce is the salt and the counter as it stands in the header."""
    return AESGCM(key).decrypt(salt + datagram.header[8:16], datagram.body, datagram.header)


def read_frames(body: bytes) -> list[dict[str, Any]]:
    """Every frame as plain data, in order."""
    fields, frames = Fields(body), []
    while fields.left:
        kind = fields.unsigned(1)
        need(kind in FRAME_READERS, f"unknown frame {kind}")
        frames.append(FRAME_READERS[kind](fields))
    others = [frame["frame"] for frame in frames if frame["frame"] not in {"message", "piece"}]
    need(len(frames) <= 1032 and len(others) <= 8 and others.count("ack") <= 1, "too many frames in a datagram")
    return frames


def read_ack(fields: Fields) -> dict[str, Any]:
    """The received counters as (lowest, highest) pairs, highest first."""
    largest, delay_us = fields.unsigned(8), fields.unsigned(4)
    credit_bytes, credit_messages = fields.unsigned(8), fields.unsigned(8)
    count, ranges, next_high = fields.unsigned(1), [], largest
    need(1 <= count <= 32, "an ACK with no range or too many")
    for nth in range(count):
        gap, length = fields.unsigned(4), fields.unsigned(4) + 1
        need((gap == 0) == (nth == 0), "a gap where there is none, or none where there is one")
        high = next_high - gap
        low = high - length + 1
        need(low >= 0, "a range below the first counter")
        ranges.append([low, high])
        next_high = low - 1
    return {
        "frame": "ack",
        "delay_us": delay_us,
        "credit_bytes": credit_bytes,
        "credit_messages": credit_messages,
        "ranges": ranges,
    }


def read_message(fields: Fields) -> dict[str, Any]:
    channel, number, size = fields.unsigned(1), fields.unsigned(8), fields.unsigned(2)
    return {"frame": "message", "channel": channel, "number": number, "contents": fields.take(size).hex()}


def read_piece(fields: Fields) -> dict[str, Any]:
    channel, number, size = fields.unsigned(1), fields.unsigned(8), fields.unsigned(4)
    piece_size, index = fields.unsigned(2), fields.unsigned(2)
    need(index * piece_size < size, "a piece behind the end of its message")
    contents = fields.take(min(piece_size, size - index * piece_size))
    return {
        "frame": "piece",
        "channel": channel,
        "number": number,
        "size": size,
        "piece_size": piece_size,
        "index": index,
        "contents": contents.hex(),
    }


FRAME_READERS: dict[int, Callable[[Fields], dict[str, Any]]] = {
    1: read_ack,
    2: read_message,
    3: read_piece,
    4: lambda _: {"frame": "ping"},
    5: lambda _: {"frame": "close"},
    6: lambda fields: {"frame": "challenge", "token": fields.unsigned(8)},
    7: lambda fields: {"frame": "response", "token": fields.unsigned(8)},
    8: lambda fields: {"frame": "want", "ordinal": fields.unsigned(4), "size": fields.unsigned(4)},
    9: lambda fields: {"frame": "grant", "granted": fields.unsigned(4)},
}


# --- a whole recording ------------------------------------------------------------------------------------------------


@dataclass
class Direction:
    """What one link has said to the other in its life: one pair of incarnations, whichever sessions it used."""

    counters: list[int] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=dict)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)

    def take(self, counter: int, frames: list[dict[str, Any]]) -> None:
        """One datagram's frames."""
        need(counter not in self.counters, "a counter was used twice")
        self.counters.append(counter)
        for frame in frames:
            self.frames.append(frame)
            if frame["frame"] in {"message", "piece"}:
                place, contents = (frame["channel"], frame["number"]), bytes.fromhex(frame["contents"])
                start = frame.get("index", 0) * frame.get("piece_size", 0)
                size = self.sizes.setdefault(place, frame.get("size", len(contents)))
                need(size == frame.get("size", len(contents)), "one message was said to have two sizes")
                known = self.parts.setdefault(place, {}).setdefault(start, contents)
                need(known == contents, "a repetition differs from what it repeats")

    def messages(self) -> dict[int, list[bytes]]:
        """The messages of each channel from number 0 on; raises if a piece is missing (of one of up to 4
        MiB), or a message."""
        whole: dict[int, list[bytes]] = {}
        for (channel, number), parts in sorted(self.parts.items()):
            contents = b"".join(parts[start] for start in sorted(parts))
            if len(contents) < self.sizes[channel, number] > 4 * 1024 * 1024:
                continue  # recordings hold only the beginning of a large message
            need(number == len(whole.setdefault(channel, [])), "a message is missing")
            need(len(contents) == self.sizes[channel, number], "a piece is missing")
            whole[channel].append(contents)
        return whole


class Wiretap:
    """Reads datagrams in the order in which they were sent."""

    def __init__(
        self,
        servers: list[PublicKeys],
        ephemeral_keys: list[ec.EllipticCurvePrivateKey],
        agreement_keys: dict[str, ec.EllipticCurvePrivateKey],
    ) -> None:
        self._servers = {server.name: server for server in servers}
        self._agreement_keys = agreement_keys
        self._ephemerals = {point_of(key.public_key()): key for key in ephemeral_keys}
        self._hellos: dict[int, Hello] = {}
        self._accepts: dict[int, tuple[Hello, Datagram]] = {}
        # By the session id in the header: key, salt, and who says it to whom.
        self._readers: dict[int, tuple[bytes, bytes, tuple[str, int, str, int]]] = {}
        self.directions: dict[tuple[str, int, str, int], Direction] = {}
        self.handshakes = 0

    def read(self, data: bytes) -> dict[str, Any]:
        """One datagram as plain data, for comparison with what the endpoint says it is."""
        datagram = split(data)
        said: dict[str, Any] = {"kind": KIND_NAMES[datagram.kind], "to_session": datagram.session}
        match datagram.kind:
            case 1:
                return said | {"cookie": datagram.counter} | self._hello(datagram)
            case 2:
                return said | self._accept(datagram)
            case 3:
                return said | self._confirm(datagram)
            case 5:
                return said | self._cookie(datagram)
            case _:
                return said | self._data(datagram)

    def _hello(self, datagram: Datagram) -> dict[str, Any]:
        named = [read for server in self._servers.values() if (read := hello_for(datagram, server)) is not None]
        need(len(named) == 1, "a HELLO for nobody here")
        check_proofs(named[0], datagram.header[8:16], self._static(named[0]))
        self._hellos[named[0].session] = named[0]
        return named[0].as_json()

    def _static(self, hello: Hello) -> bytes:
        ours = self._agreement_keys[hello.initiator]
        return static_secret(ours, self._servers[hello.initiator], self._servers[hello.responder])

    def _cookie(self, datagram: Datagram) -> dict[str, Any]:
        """Of a responder that knows the initiator, or of one that does not."""
        need(len(datagram.header) + len(datagram.body) == COOKIE_BYTES, "a COOKIE of another length")
        hello = self._hellos[datagram.session]
        answered = hello.body[-MAC_BYTES:]
        proved = static_mac(self._static(hello), datagram.header + hello.ephemeral)
        echoed = static_mac(answered, datagram.header)
        need(datagram.body in {proved, echoed}, "a COOKIE that answers nothing")
        return {"cookie": datagram.counter, "is_proved": datagram.body == proved}

    def _accept(self, datagram: Datagram) -> dict[str, Any]:
        hello = self._hellos[datagram.session]
        shaken = self._shaken(hello, datagram, None)
        self._accepts[shaken.session_of_responder] = (hello, datagram)
        self._add(shaken)
        return {"session": shaken.session_of_responder, "incarnation": shaken.incarnation_of_responder}

    def _confirm(self, datagram: Datagram) -> dict[str, Any]:
        hello, accept = self._accepts[datagram.session]
        self._shaken(hello, accept, datagram)
        self.handshakes += 1
        return {}

    def _data(self, datagram: Datagram) -> dict[str, Any]:
        key, salt, ends = self._readers[datagram.session]
        frames = read_frames(open_data(datagram, key, salt))
        self.directions.setdefault(ends, Direction()).take(datagram.counter, frames)
        return {"counter": datagram.counter, "frames": frames}

    def _shaken(self, hello: Hello, accept: Datagram, confirm: Datagram | None) -> Handshake:
        initiator, responder = self._servers[hello.initiator], self._servers[hello.responder]
        static, ephemeral = self._static(hello), self._ephemerals[hello.ephemeral]
        return read_handshake(hello, accept, confirm, ephemeral, static, initiator, responder)

    def _add(self, shaken: Handshake) -> None:
        hello, secrets = shaken.hello, shaken.secrets
        initiator = (hello.initiator, hello.incarnation)
        responder = (hello.responder, shaken.incarnation_of_responder)
        self._readers[shaken.session_of_responder] = (
            secrets.key_of_initiator, secrets.salt_of_initiator, (*initiator, *responder),
        )  # fmt: skip
        self._readers[hello.session] = (
            secrets.key_of_responder, secrets.salt_of_responder, (*responder, *initiator),
        )  # fmt: skip


def hello_for(datagram: Datagram, server: PublicKeys) -> Hello | None:
    """The HELLO, if it was made for this server."""
    try:
        return read_hello(datagram, server)
    except NotOfTheProtocol:
        return None


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """The byte 4, x and y."""
    numbers = key.public_numbers()
    return b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
