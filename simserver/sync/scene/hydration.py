"""The whole state of a scene, for who comes late: one answer by the scene's authority, signed, in chunks of 12 KiB.

Who joins asks with a nonce, reads the answer, and says that it has it. Only then is what it writes taken: what it wrote
before it knew the state cannot beat it. From the answer on it gets every flush, so it misses nothing.

Each answer names the *generation* of the server, which is another one whenever the server's state does not continue the
last. A peer that sees a new one asks again. What it had is replaced, and it does not tell others that anything was
removed.

    question  kind u8 (1), nonce 16 bytes
    answer    kind u8 (2), generation u64, tick u64, length u32, SHA-256 of the state, signature 64 bytes, and the first
              bytes of the state; the signature is for the nonce and all before it
    more      kind u8 (3), generation u64, number u32 from 1, and more of the state
    thanks    kind u8 (4), generation u64, nonce 16 bytes

Numbers are little endian. The state is messages: those of `SceneReplica.snapshot`, and then DELETE_ENTITY for numbers
that were used and are not.
"""

import hashlib
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.codec import MessageKind, write_run
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES, SceneLimits
from batonpass.simserver.sync.scene.replica import SceneReplica

__all__ = ["NONCE_BYTES", "QUESTION", "SceneState", "StateAnswers", "StateReader"]

NONCE_BYTES: Final = 16
QUESTION: Final = b"\1"
"""What a question begins with."""
_SIGNATURE_BYTES: Final = 64
_DOMAIN: Final = b"batonpass scene state 1\0"
_QUESTION, _ANSWER, _MORE, _THANKS = 1, 2, 3, 4
_HEAD: Final = struct.Struct("<BQQI32s")
_PART: Final = struct.Struct("<BQI")
_GENERATION: Final = struct.Struct("<BQ")
_FIRST_ROOM: Final = NETWORK_CHUNK_BYTES - _HEAD.size - _SIGNATURE_BYTES
_ROOM: Final = NETWORK_CHUNK_BYTES - _PART.size


class SceneState(NamedTuple):
    """A whole state: of which generation and tick, and its messages."""

    generation: int
    tick: int
    messages: bytes


class _StateHead(NamedTuple):
    generation: int
    tick: int
    length: int
    digest: bytes


class StateAnswers:
    """The authority's side.

    Args:
        generation: of the server, a u64; another one whenever the state does not continue what was told before.
        sign: by the key that the authority's certificate has; it returns 64 bytes.
    """

    def __init__(self, generation: int, sign: Callable[[bytes], bytes]) -> None:
        self.generation: Final = generation
        self._sign: Final = sign
        self._made: SceneState | None = None
        self._rest: list[bytes] = []
        self._asked: Final[dict[str, bytes]] = {}

    def receive(self, scene: SceneReplica, peer: str, message: bytes) -> list[bytes]:
        """Take a question or thanks from a peer that is connected and not heard; to be called between two ticks.

        A peer has one question open: it is answered again only under another nonce.

        Returns:
            The chunks for this peer alone; none for thanks.

        Raises:
            SceneRefusal: if the message is neither, or does not belong to a question.
        """
        if len(message) == 1 + NONCE_BYTES and message[0] == _QUESTION:
            nonce = message[1:]
            if self._asked.get(peer) == nonce:
                return []
            self._asked[peer] = nonce
            scene.tell(peer)
            return self._answer(scene, nonce)
        if len(message) == _GENERATION.size + NONCE_BYTES and message[0] == _THANKS:
            _, generation = _GENERATION.unpack_from(message)
            if generation == self.generation and self._asked.get(peer) == message[_GENERATION.size :]:
                del self._asked[peer]
                scene.hear(peer)
                return []
        raise SceneRefusal(f"{peer} sent {len(message)} bytes that are neither a question nor thanks for an answer")

    def forget(self, peer: str) -> None:
        """Forget the question of a peer that has left."""
        self._asked.pop(peer, None)

    def _answer(self, scene: SceneReplica, nonce: bytes) -> list[bytes]:
        made = self._made
        if made is None or made.tick != scene.tick:
            # Once a tick, however many ask.
            messages = scene.snapshot() + write_run(MessageKind.DELETE_ENTITY, [scene.gone()])
            made = self._made = SceneState(self.generation, scene.tick, messages)
            # All who ask in a tick share them: only the first chunk is of the question.
            self._rest = [
                _PART.pack(_MORE, self.generation, number) + messages[at : at + _ROOM]
                for number, at in enumerate(range(_FIRST_ROOM, len(messages), _ROOM), start=1)
            ]
        state = made.messages
        head = _HEAD.pack(_ANSWER, self.generation, made.tick, len(state), hashlib.sha256(state).digest())
        return [head + self._sign(_DOMAIN + nonce + head) + state[:_FIRST_ROOM], *self._rest]


class StateReader:
    """The side of who comes late. Chunks of an answer come in their order.

    Args:
        verifies: whether the holder of the key that the authority's certificate has has signed this message so.
        limits: a longer state is refused.
    """

    def __init__(self, verifies: Callable[[bytes, bytes], bool], limits: SceneLimits | None = None) -> None:
        self._verifies: Final = verifies
        self._limits: Final = limits or SceneLimits()
        self._nonce = b""
        self._head: _StateHead | None = None
        self._parts: list[bytes] = []
        self._had_bytes = 0
        self.generation: int | None = None
        """Of the state that was read last; None before the first."""

    def is_new(self, generation: int) -> bool:
        """Whether the server has begun anew since the state that was read: it has to be asked again."""
        return generation != self.generation

    def ask(self, nonce: bytes) -> bytes:
        """The question; what was read of an earlier answer is dropped.

        Args:
            nonce: 16 bytes that no peer can know before.
        """
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._nonce, self._head, self._parts = nonce, None, []
        return bytes((_QUESTION,)) + nonce

    def thanks(self) -> bytes:
        """What the server is told when the state has been taken.

        Raises:
            ValueError: if no state was read.
        """
        if self.generation is None:
            raise ValueError("no state was read: ask for it")
        return _GENERATION.pack(_THANKS, self.generation) + self._nonce

    def receive_untrusted(self, chunk: bytes) -> SceneState | None:
        """Take a chunk that any peer may have sent.

        Returns:
            The state, if this was its last chunk.

        Raises:
            SceneRefusal: if it is not the next chunk of an answer to the question, by the authority. What was read
                before remains, unless the whole is not what was signed.
        """
        if chunk[:1] == bytes((_ANSWER,)) and len(chunk) >= _HEAD.size + _SIGNATURE_BYTES:
            self._head = self._begun(chunk)
            self._parts, self._had_bytes = [chunk[_HEAD.size + _SIGNATURE_BYTES :]], 0
        elif chunk[:1] == bytes((_MORE,)) and len(chunk) >= _PART.size and self._head is not None:
            _, generation, number = _PART.unpack_from(chunk)
            if generation != self._head.generation or number != len(self._parts):
                raise SceneRefusal(f"chunk {number} of generation {generation} is not the next of this state")
            self._parts.append(chunk[_PART.size :])
        else:
            raise SceneRefusal(f"{len(chunk)} bytes are no chunk of a state that was asked for")
        return self._finished(self._head)

    def _begun(self, chunk: bytes) -> _StateHead:
        head = chunk[: _HEAD.size]
        signature = chunk[_HEAD.size : _HEAD.size + _SIGNATURE_BYTES]
        _, generation, tick, length, digest = _HEAD.unpack(head)
        if not self._nonce or self._head is not None:
            raise SceneRefusal("an answer that was not asked for")
        if length > self._limits.max_state_bytes:
            raise SceneRefusal(f"a state of {length} bytes: {self._limits.max_state_bytes} at most are taken")
        if not self._verifies(_DOMAIN + self._nonce + head, signature):
            raise SceneRefusal("an answer that the authority has not signed for this question")
        return _StateHead(generation, tick, length, digest)

    def _finished(self, head: _StateHead) -> SceneState | None:
        generation, tick, length, digest = head
        self._had_bytes += len(self._parts[-1])
        if self._had_bytes < length:
            return None
        messages = b"".join(self._parts)
        self._head, self._parts = None, []
        if len(messages) != length or hashlib.sha256(messages).digest() != digest:
            raise SceneRefusal("a state that is not the one that was signed: ask again")
        self.generation = generation
        return SceneState(generation, tick, messages)
