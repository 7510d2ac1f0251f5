"""A scene among peers that have proved their keys: the server that has authority over it, and each of them.

A peer is known by its key alone: its name is a hash of it, and its network id is the beginning of this hash. So no peer
can name entities as another, or be taken for another after it has come again.

What they send each other is messages of `hydration`, and

    chunk     kind u8 (5), and messages of the scene
    again     kind u8 (6), and why in UTF-8: no message brings the peer back; it has to ask for the state

The authority takes and tells nothing while it does not hold the scene: it fails closed, and peers ask elsewhere. Each
answer with the state has the fence of its authority as its generation. So a peer of which another server has taken the
scene over, or whose server has it anew, sees another generation.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.simserver.sync.scene.codec import MAX_U32
from batonpass.simserver.sync.scene.exchange import PeerKind, SceneRefusal
from batonpass.simserver.sync.scene.hydration import QUESTION, StateAnswers, StateReader
from batonpass.simserver.sync.scene.limits import SceneLimits
from batonpass.simserver.sync.scene.network_ids import NETWORK_ENTITY, NetworkId, network_value
from batonpass.simserver.sync.scene.replica import SceneReplica

__all__ = ["PeerIdentity", "SceneAuthority", "SceneMember", "SceneTrust", "generation_of", "identity_of", "proof_text"]

_PROOF: Final = b"batonpass scene key 1\0"
_CHUNK: Final = b"\5"
_AGAIN: Final = b"\6"
_SERVER: Final = "authority"
_COPY: Final = "copy"
_WHY_CHARS: Final = 200
_SERVER_NETWORK: Final = 0
_SUBS: Final = 2**16
_MAX_EPOCH: Final = 2**48


class PeerIdentity(NamedTuple):
    """What a peer is called, and the network id under which it names entities."""

    name: str
    network: int


def identity_of(public: bytes) -> PeerIdentity:
    """The identity of who has proved to have this public key.

    Raises:
        ValueError: if the key is empty.
    """
    if not public:
        raise ValueError("a peer has an empty public key: take the one that it has proved to have")
    digest = hashlib.sha256(b"batonpass scene peer 1\0" + public).digest()
    return PeerIdentity(digest.hex(), int.from_bytes(digest[:4], "big") or 1)


def generation_of(fence: Fence) -> int:
    """The generation of a scene under this fence: of two fences the higher one has the higher number.

    Raises:
        ValueError: if no number is left for it. Nothing may be told then.
    """
    if not (0 <= fence.epoch < _MAX_EPOCH and 0 <= fence.sub < _SUBS):
        raise ValueError(f"there is no generation for the fence {fence}: transfer the scene through its log")
    return fence.epoch * _SUBS + fence.sub


class SceneAuthority:
    """The server's side, for as long as it has the scene under one fence.

    Args:
        scene: the replica here; it has rights.
        fence: under which this server has the scene.
        sign: by the key that its certificate has; it returns 64 bytes.
        holds: whether this server has the authority at this moment.
        again_ticks: a peer that asks for the state again within this number of ticks is answered after them. Else one
            that is brought back again and again would have the server tell it all in every tick.

    Attributes:
        changes: what the last tick has changed, as messages by the ids here. After a snapshot of the state before, they
            are one of the state now. The names that entities were given at the beginning are in those of the first.
    """

    def __init__(
        self,
        scene: SceneReplica,
        fence: Fence,
        sign: Callable[[bytes], bytes],
        holds: Callable[[], bool],
        again_ticks: int = 0,
    ) -> None:
        if not scene.has_rights:
            raise ValueError("a scene whose authority takes writes of everybody: give its replica rights")
        self.scene: Final = scene
        self._answers: Final = StateAnswers(generation_of(fence), sign)
        self._holds: Final = holds
        self._members: Final[dict[str, int]] = {}
        self._answered: Final[set[str]] = set()
        self._again_ticks: Final = again_ticks
        # When peers had the state last, and the questions of those that have to wait.
        self._told_at: Final[dict[str, int]] = {}
        self._waiting: Final[dict[str, bytes]] = {}
        scene.connect(_COPY, PeerKind.RENDERER)
        for entity in scene.numbers.used:
            if scene.value(entity, NETWORK_ENTITY) is None:
                self._name(entity)
        # A state that is told has these names: no other takes part yet.
        self._begun = b"".join(scene.flush()[_COPY])
        self.changes = b""

    def create_entity(self) -> int:
        """Begin to use an entity, which all peers know by a name that is the authority's; errors are the replica's."""
        entity = self.scene.create_entity()
        self._name(entity)
        return entity

    def _name(self, entity: int) -> None:
        # Without a name, peers would take it for one of their own.
        self.scene.put(entity, NETWORK_ENTITY, network_value(NetworkId(_SERVER_NETWORK, entity)))

    def join(self, public: bytes) -> PeerIdentity:
        """Have a peer take part that has proved to have this key. It has to ask for the state.

        Raises:
            SceneRefusal: if it takes part already, another one has its network id, or this server has no authority.
            ValueError: if the key is empty.
        """
        self._require()
        name, network = identity = identity_of(public)
        if name in self._members:
            raise SceneRefusal(f"{name} takes part already: its earlier connection has to end")
        if network in self._members.values():
            raise SceneRefusal(f"{name} has the network id {network} of another peer: take another key")
        self._members[name] = network
        self.scene.connect(name, PeerKind.NETWORK, public, has_state=False, network=network)
        return identity

    def leave(self, name: str) -> None:
        """Have a peer take part no more. What it owns remains its own."""
        if self._members.pop(name, None) is not None:
            self.scene.disconnect(name)
            self._answers.forget(name)
            self._waiting.pop(name, None)

    def receive_untrusted(self, name: str, message: bytes) -> list[bytes]:
        """Take a message of a peer.

        Returns:
            What this peer alone is sent at once.

        Raises:
            SceneRefusal: if the message is bad, the peer takes no part, or this server has no authority.
        """
        self._require()
        if name not in self._members:
            raise SceneRefusal(f"{name} takes no part in this scene: it has to join")
        if message[:1] == _CHUNK:
            self.scene.receive(name, message[1:])
            return []
        if message[:1] == QUESTION and self._is_early(name):
            self._waiting[name] = message
            return []
        answer = self._answers.receive(self.scene, name, message)
        if answer:
            self._told_at[name] = self.scene.tick
            if name in self._answered:
                raise SceneRefusal(f"{name} asks for the state twice in a tick: it has had its answer")
            self._answered.add(name)
        return answer

    def tick(self) -> dict[str, list[bytes]]:
        """Apply what came, and end the tick; what each peer is sent. Without authority nothing is done.

        A peer that no correction brings back has to ask for the state, and nothing of it is taken before it has that.
        """
        self.changes = b""
        if not self._holds():
            return {}
        self._answered.clear()
        late = {name: self._answer_late(name) for name in list(self._waiting) if not self._is_early(name)}
        self.scene.apply()
        flushed = self.scene.flush()
        self.changes, self._begun = self._begun + b"".join(flushed.pop(_COPY)), b""
        # Most members are told the same: so it is one message for all of them.
        message_of = {chunk: _CHUNK + chunk for chunk in {chunk for chunks in flushed.values() for chunk in chunks}}
        sent = {name: [message_of[chunk] for chunk in chunks] for name, chunks in flushed.items()}
        for name, why in self.scene.corrections.take_astray().items():
            if name in self._members:
                self.scene.hold_back(name)
                self._answers.forget(name)
                sent[name] = [_AGAIN + why[:_WHY_CHARS].encode()]
        for name in [name for name in self._told_at if not self._is_early(name)]:
            del self._told_at[name]
        return {name: late.get(name, []) + messages for name, messages in sent.items()}

    def _is_early(self, name: str) -> bool:
        return self.scene.tick - self._told_at.get(name, -self._again_ticks) < self._again_ticks

    def _answer_late(self, name: str) -> list[bytes]:
        """The answer to a question that had to wait: the state before this tick, of which the peer is told then."""
        try:
            answer = self._answers.receive(self.scene, name, self._waiting.pop(name))
        except SceneRefusal:
            # It was no question; who sends such things is not answered.
            return []
        self._told_at[name] = self.scene.tick
        return answer

    def _require(self) -> None:
        if not self._holds():
            raise SceneRefusal("this server has no authority over the scene at this moment: ask again, or elsewhere")


class SceneTrust:
    """Which key the authority of a scene has, by certificates of the log or the word of its home. It never goes back.

    Args:
        entity: which the scene is.
    """

    def __init__(self, entity: str) -> None:
        self._entity: Final = entity
        self.fence: Fence | None = None
        """Of the newest certificate; None before the first."""
        self.public = b""
        """The key of the authority; empty before the first certificate."""

    def take(self, certificate: CommitCertificate, target: str, public: bytes) -> None:
        """Believe that `target` has the scene.

        Args:
            certificate: that the entity was given to this server; its signature has been verified to be the log's.
            target: a server.
            public: the key that this server is known to have.

        Raises:
            SceneRefusal: if the certificate is of another entity or server, or of an earlier authority.
        """
        if certificate.entity != self._entity or certificate.target != target or not public:
            raise SceneRefusal(f"a certificate that {certificate.target} has {certificate.entity} says nothing of this")
        self.learn(certificate.fence, public)

    def learn(self, fence: Fence, public: bytes) -> None:
        """Believe that the holder of a key has the scene under this fence.

        Args:
            fence: of the authority.
            public: the key that its server is known to have.

        Who calls this must have it from the scene's home, by a way on which no other can answer.

        Raises:
            SceneRefusal: if it is of an earlier authority, or the key is empty.
        """
        if not public:
            raise SceneRefusal(f"no key is known of the authority of {self._entity}: ask for the row of its server")
        if self.fence is not None and fence < self.fence:
            raise SceneRefusal(f"an authority under {fence}, and {self.fence} is known: ask the new authority")
        self.fence, self.public = fence, public


class SceneMember:
    """The side of a peer, with one authority after the other.

    Args:
        scene: the replica here.
        identity: of this peer, by its key.
        trust: which authority it believes.
        verifies: whether the holder of a public key has signed a message so: key, message, signature.
        limits: of a state.
    """

    def __init__(
        self,
        scene: SceneReplica,
        identity: PeerIdentity,
        trust: SceneTrust,
        verifies: Callable[[bytes, bytes, bytes], bool],
        limits: SceneLimits | None = None,
    ) -> None:
        self.scene: Final = scene
        self._trust: Final = trust
        self._reader: Final = StateReader(lambda message, signature: verifies(trust.public, message, signature), limits)
        self._network: Final = identity.network
        self._next_name = 0
        self.is_in_step = False
        """Whether it has the state of the authority that it talks to. What it changes is sent then, and not before."""
        self.has_to_ask = True
        """Whether it waits for no state, and has none: it has to `ask`."""
        self.why_again = ""
        """Why the authority had it ask again last, for people; empty if that never was."""

    @property
    def generation(self) -> int | None:
        """Of the state that it had last; None before the first."""
        return self._reader.generation

    def ask(self, nonce: bytes) -> bytes:
        """Begin with the authority that is trusted now: the question for its state.

        Raises:
            SceneRefusal: if no certificate says who has the scene.
        """
        if self._trust.fence is None:
            raise SceneRefusal("no certificate says who has authority over this scene: get one before")
        self.pause()
        self.has_to_ask = False
        # Names that this peer has given before, of which no state tells any more, have to be others.
        self._next_name = int.from_bytes(nonce[:4], "little")
        return self._reader.ask(nonce)

    def pause(self) -> None:
        """Be no peer of an authority until it has been asked: the connection is over, or no message brings it back."""
        self.is_in_step, self.has_to_ask = False, True
        self.scene.disconnect(_SERVER)

    def create_entity(self) -> int:
        """Begin to use an entity, which all peers know by a name of this one's; errors are those of the replica."""
        entity = self.scene.create_entity()
        name = NetworkId(self._network, self._next_name)
        while self.scene.entity_named(name) is not None:
            name = NetworkId(self._network, (name.entity + 1) & MAX_U32)
        self._next_name = (name.entity + 1) & MAX_U32
        self.scene.put(entity, NETWORK_ENTITY, network_value(name))
        return entity

    def receive_untrusted(self, message: bytes) -> bytes | None:
        """Take a message of the authority.

        Returns:
            What to answer; None for nothing. If it is not in step any more, it has to `ask`.

        Raises:
            SceneRefusal: if it is bad, not signed by the authority, or of an earlier one than the trusted.
        """
        if message[:1] == _AGAIN:
            self.pause()
            self.why_again = message[1 : 1 + 4 * _WHY_CHARS].decode(errors="replace")
            return None
        if message[:1] == _CHUNK:
            if self.is_in_step:
                self.scene.receive(_SERVER, message[1:])
            return None
        state = self._reader.receive_untrusted(message)
        if state is None:
            return None
        if self._trust.fence is not None and state.generation < generation_of(self._trust.fence):
            raise SceneRefusal(
                f"a state of generation {state.generation}, and its authority has a later one: ask again"
            )
        self.scene.hydrate(state.messages)
        self.scene.connect(_SERVER, PeerKind.NETWORK, self._trust.public)
        self.scene.trust(self._trust.public)
        self.is_in_step = True
        return self._reader.thanks()

    def tick(self) -> list[bytes]:
        """Apply what came, and end the tick; what the authority is sent."""
        self.scene.apply()
        sent = self.scene.flush()
        return [_CHUNK + chunk for chunk in sent.get(_SERVER, [])] if self.is_in_step else []


def proof_text(challenge: bytes, entity: str, server: str) -> bytes:
    """What a peer signs to prove its key to this server, which has given it this challenge, for this scene alone."""
    return _PROOF + challenge + f"{entity} {server}".encode()
