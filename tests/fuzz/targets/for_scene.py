"""Targets of scenes: chunks at a replica among peers of each kind, a state for who comes late, values of components."""

from contextlib import suppress

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.simserver.sync.rendering.batches import SceneHello, read_hello_untrusted
from batonpass.simserver.sync.scene import schemas
from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.comms import RoomKind, read_room_message_untrusted, write_room_message
from batonpass.simserver.sync.scene.exchange import PeerKind, SceneRefusal, SetComponent
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES, StateAnswers, StateReader
from batonpass.simserver.sync.scene.membership import SceneAuthority, SceneMember, SceneTrust, identity_of
from batonpass.simserver.sync.scene.profiles import SDK_7_28, UNITY_EXPLORER_2026_08
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import WriteRights
from batonpass.simserver.sync.scene.schedule import ScenePlace
from batonpass.simserver.sync.scene.schemas import BadValue
from batonpass.simserver.sync.scene.store import TRANSFORM
from batonpass.simserver.sync.scenes.client import door_untrusted
from tests.fuzz.target import Target

_MAX_CHUNKS = 20
_SET = 1_063
_OTHER = 1_017
_SCHEMA = schemas.map_of(
    {
        "name": schemas.STRING,
        "points": schemas.array_of(schemas.optional(schemas.VECTOR3)),
        "at": schemas.TRANSFORM_SCHEMA,
    }
)


def _scene(rights: WriteRights | None = None) -> SceneReplica:
    scene = SceneReplica("here", [_OTHER], [SetComponent(_SET)], UNITY_EXPLORER_2026_08, rights=rights)
    for kind in PeerKind:
        scene.connect(kind.name, kind, b"key")
    scene.trust(b"key")
    return scene


def _receive(data: bytes) -> None:
    """Chunks with their peers and lengths before them, to a replica that takes all and to one that takes little."""
    kinds = list(PeerKind)
    for scene in (_scene(), _scene(WriteRights(PeerKind.SCENE.name))):
        at = 0
        for _ in range(_MAX_CHUNKS):
            if at + 3 > len(data):
                break
            end = at + 3 + int.from_bytes(data[at + 1 : at + 3], "little")
            with suppress(SceneRefusal):
                scene.receive(kinds[data[at] % len(kinds)].name, data[at + 3 : end])
            scene.apply()
            scene.flush()
            at = end


def _hydrate(data: bytes) -> None:
    reader = StateReader(lambda message, signature: True)
    reader.ask(bytes(NONCE_BYTES))
    state = reader.receive_untrusted(data)
    if state is not None:
        _scene().hydrate(state.messages)


def _chunks() -> list[bytes]:
    rows: list[tuple[MessageKind, tuple[object, ...]]] = [
        (MessageKind.PUT, (512, TRANSFORM, 1, bytes(44))),
        (MessageKind.PUT, (512, _OTHER, 1, b"value")),
        (MessageKind.DELETE, (512, _OTHER, 2)),
        (MessageKind.APPEND, (512, _SET, 0, b"value")),
        (MessageKind.PUT_NETWORK, (600, _OTHER, 1, 77, b"value")),
        (MessageKind.DELETE_NETWORK, (600, _OTHER, 2, 77)),
        (MessageKind.AUTHORITATIVE_PUT, (512, _OTHER, 1, b"value")),
        (MessageKind.DELETE_ENTITY_NETWORK, (600, 77)),
        (MessageKind.DELETE_ENTITY, (512,)),
    ]
    return [write_message(kind, row) for kind, row in rows]


def _seeds() -> list[bytes]:
    chunks = [*_chunks(), b"".join(_chunks())]
    return [b"".join(bytes((at % 4,)) + len(one).to_bytes(2, "little") + one for at, one in enumerate(chunks))]


def _state() -> list[bytes]:
    scene = _scene()
    for chunk in _chunks()[:5]:
        scene.receive(PeerKind.PLAIN.name, chunk)
    scene.apply()
    scene.flush()
    scene.connect("late", has_state=False)
    question = StateReader(lambda message, signature: True).ask(bytes(NONCE_BYTES))
    return StateAnswers(1, lambda message: bytes(64)).receive(scene, "late", question)


_VALUE = {"name": "a€", "points": [None, schemas.Vector3(1, 2, 3)], "at": schemas.SceneTransform()}
_ROOM = "batonpass.simserver.sync.scene"


def _member(data: bytes) -> None:
    trust = SceneTrust("alpha.scene-plaza")
    trust.take(_certificate(), "alpha.s1", b"key")
    member = SceneMember(_scene(), identity_of(b"peer"), trust, lambda public, message, signature: True)
    member.ask(bytes(NONCE_BYTES))
    for message in _pieces(data):
        with suppress(SceneRefusal):
            member.receive_untrusted(message)
        member.tick()


def _authority(data: bytes) -> None:
    authority = _seated()
    for message in _pieces(data):
        with suppress(SceneRefusal):
            authority.receive_untrusted(identity_of(b"peer").name, message)
        authority.tick()


def _pieces(data: bytes) -> list[bytes]:
    """Messages with their lengths before them."""
    pieces: list[bytes] = []
    at = 0
    while at + 2 <= len(data) and len(pieces) < _MAX_CHUNKS:
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        pieces.append(data[at + 2 : end])
        at = end
    return pieces


def _of_pieces(pieces: list[bytes]) -> bytes:
    return b"".join(len(piece).to_bytes(2, "little") + piece for piece in pieces)


def _certificate() -> CommitCertificate:
    return CommitCertificate(
        entity="alpha.scene-plaza",
        epoch=1,
        sub=0,
        transfer_id="transfer-1",
        source="alpha.s0",
        target="alpha.s1",
        tick=0,
        state_hash="0" * 64,
    )


def _seated() -> SceneAuthority:
    authority = SceneAuthority(_scene(WriteRights("server")), Fence(1), lambda message: bytes(64), lambda: True)
    authority.join(b"peer")
    return authority


def _said() -> list[bytes]:
    """What a member says: a question, thanks, and what it has changed."""
    trust = SceneTrust("alpha.scene-plaza")
    trust.take(_certificate(), "alpha.s1", b"key")
    member = SceneMember(_scene(), identity_of(b"peer"), trust, lambda public, message, signature: True)
    authority, said = _seated(), [member.ask(bytes(NONCE_BYTES))]
    for message in authority.receive_untrusted(identity_of(b"peer").name, said[0]):
        said.append(member.receive_untrusted(message) or b"")
    member.scene.put(member.create_entity(), _OTHER, b"value")
    return [_of_pieces(said + member.tick())]


def _heard() -> list[bytes]:
    authority = _seated()
    heard = authority.receive_untrusted(identity_of(b"peer").name, b"\1" + bytes(NONCE_BYTES))
    authority.scene.put(authority.create_entity(), _OTHER, b"value")
    return [_of_pieces([*heard, *authority.tick()[identity_of(b"peer").name], b"\6"])]


def _door(data: bytes) -> None:
    door_untrusted(data.decode(errors="replace"), "http://127.0.0.1:1/alpha.scene-plaza")


def _room(data: bytes) -> None:
    read_room_message_untrusted(data, SDK_7_28)


TARGETS = [
    Target(
        "scene-room",
        _room,
        [f"{_ROOM}.comms:read_room_message_untrusted"],
        lambda: [b"\x03ada" + write_room_message(RoomKind.CRDT, b"data", SDK_7_28)],
        allowed=(SceneRefusal,),
    ),
    Target(
        "scene-elsewhere",
        _door,
        ["batonpass.simserver.sync.scenes.client:door_untrusted"],
        lambda: [b'{"code": "elsewhere", "message": "gone", "url": "http://127.0.0.1:9931/alpha.scene-plaza"}'],
        allowed=(SceneRefusal,),
    ),
    Target("scene-replica", _receive, [f"{_ROOM}.codec:read_chunk_untrusted"], _seeds, slow=True),
    Target(
        "scene-state", _hydrate, [f"{_ROOM}.hydration:StateReader.receive_untrusted"], _state, allowed=(SceneRefusal,)
    ),
    Target(
        "scene-value",
        _SCHEMA.decode_untrusted,
        [f"{_ROOM}.schemas:SceneSchema.decode_untrusted"],
        lambda: [_SCHEMA.encode(_VALUE)],
        allowed=(BadValue,),
    ),
    Target(
        "scene-authority",
        _authority,
        [f"{_ROOM}.membership:SceneAuthority.receive_untrusted"],
        _said,
        slow=True,
    ),
    Target("scene-member", _member, [f"{_ROOM}.membership:SceneMember.receive_untrusted"], _heard, slow=True),
    Target(
        "scene-hello",
        read_hello_untrusted,
        ["batonpass.simserver.sync.rendering.batches:read_hello_untrusted"],
        lambda: [SceneHello("plaza €", ScenePlace(1.0, 2.0)).encoded()],
        allowed=(SceneRefusal,),
    ),
]
