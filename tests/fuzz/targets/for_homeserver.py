"""What reaches a homeserver: requests about the tree, messages over the link, chains of certificates."""

import functools
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from starlette.requests import Request

from batonpass.actors.http.app import ApiError
from batonpass.actors.net.inbox import Received
from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.model.records import Role
from batonpass.authority.model.reserved_paths import PathReserved
from batonpass.authority.trust.certificate_reader import CertificateReader
from batonpass.authority.trust.certificates import BrokenChain, PassCertificate
from batonpass.authority.wire.lease import RENEWAL_CHANNEL
from batonpass.authority.wire.transfer import Spawned, encode_link
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.failover.renewal_lane import RenewalResponder
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.node.dispatch import BeingAnswered, HomeserverNode
from batonpass.homeserver.node.drops import Drops
from batonpass.homeserver.overview.acts import said_untrusted
from batonpass.homeserver.rest import transport, tree, tree_inputs
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.creation import EntityCreation
from batonpass.homeserver.transfer.deletion_notices import DeletionNotices
from batonpass.homeserver.transfer.parcels import Parcels
from batonpass.tree.data.errors import BadData, BadPath
from batonpass.tree.data.json_form import to_json as to_json_form
from tests.fuzz.plain import NotPlain, from_json, to_cbor, to_json
from tests.fuzz.target import Target
from tests.fuzz.targets.for_authority import CERTIFICATE, LOG_POSITION, SEALERS, message_seeds, parcel, sealed_contents
from tests.fuzz.targets.for_tree import CONDITION, EXPORT
from tests.fuzz.world import IDENTITIES, NOW_S

TREE_ERRORS = (BadPath, BadData, PathReserved)


# --- REST -------------------------------------------------------------------------------------------------------------


def _request(path: bytes = b"/v1/tree/a", headers: list[tuple[bytes, bytes]] | None = None) -> Request:
    return Request({"type": "http", "method": "GET", "raw_path": path, "path": "/", "headers": headers or []})


def _preconditions(data: bytes) -> None:
    match, _, none_match = data.partition(b"\n")
    headers = [(b"if-match", match)] if match else []
    headers += [(b"if-none-match", none_match)] if none_match else []
    tree_inputs.preconditions_untrusted(_request(headers=headers))


def _inputs(data: bytes) -> None:
    """One piece of JSON as pattern, as conditions, as keep_while."""
    value = from_json(data)
    readers: list[Callable[[], object]] = [
        lambda: tree_inputs.pattern_untrusted(value),
        lambda: tree_inputs.conditions_untrusted(value if isinstance(value, list) else [value]),
        lambda: tree_inputs.keep_while_untrusted(("a",), value if isinstance(value, list) else [value]),
    ]
    for read in readers:
        with suppress(*TREE_ERRORS):
            read()


def _texts(data: bytes) -> None:
    """One text as a pattern, a path, and the conditions of a query."""
    text = data.decode("utf-8", "surrogateescape")
    for read in (tree_inputs.pattern_untrusted, tree_inputs.path_from_json_untrusted, tree._list_untrusted):
        with suppress(*TREE_ERRORS):
            read(text)


def _import(data: bytes) -> None:
    for mode in ("merge", "replace"):
        rows = [transport._read_line_untrusted(*line) for line in transport._lines_untrusted(data)]
        transport._check_rows_untrusted(rows, mode)


# --- the link ---------------------------------------------------------------------------------------------------------


def run_at_once(coroutine: Coroutine[Any, Any, object]) -> object:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return cast(object, stopped.value)
    coroutine.close()
    raise AssertionError("it waits for something")


class KnownServers:
    """A directory that answers at once."""

    async def keys_of(self, name: str, _kid: str = "") -> object:
        identity = IDENTITIES.get(name)
        return None if identity is None else identity.public

    def keys_known(self, name: str) -> PublicIdentity | None:
        identity = IDENTITIES.get(name)
        return None if identity is None else identity.public


CLOCK = SimpleNamespace(monotonic_ns=lambda: 90, unix_s=lambda: NOW_S, bell=lambda: None)


NOTHING: Any = None


def _parcels() -> Parcels:
    return Parcels(SEALERS["beta.h1"], cast(Any, KnownServers()), NOTHING, cast(Any, CLOCK), lambda _: "")


class _Untaken:
    """The parts of a homeserver, of which some take what wants no answer, and the others answer nothing."""

    def __init__(self) -> None:
        self.instance = "beta"
        self.store = SimpleNamespace(entity=lambda _: None, row=lambda _: None)
        self.births = EntityCreation(NOTHING, NOTHING, cast(Any, CLOCK), lambda _: NOTHING)
        self.deletion_notices = DeletionNotices(NOTHING, NOTHING, cast(Any, CLOCK), lambda: False)


class FakeNode(_Untaken):
    """The parts of `homeserver.node.dispatch.HomeserverNode` that take a message."""

    def __init__(self) -> None:
        super().__init__()
        self.parcels = _parcels()
        self.drops = Drops(cast(Any, CLOCK))
        self.transfers = SimpleNamespace(replies=_no_replies)
        self._answering = BeingAnswered()
        self.took = functools.partial(HomeserverNode.took, cast(Any, self))

    async def answer(self, opened: object) -> None:
        """What it does is not about bytes."""


async def _no_replies(opened: object) -> list[Any]:
    return []


def _take(message: bytes) -> object:
    received = Received("alpha.h1", message, 0, ("10.0.0.1", 1))
    return run_at_once(HomeserverNode._take_untrusted(cast(Any, FakeNode()), received))


def _take_renewal(message: bytes) -> object:
    lane = RenewalResponder(cast(Any, None), cast(Any, None), _parcels(), cast(Any, None), _ignore)
    return run_at_once(lane._opened_untrusted(Received("alpha.h1", message, RENEWAL_CHANNEL, ("10.0.0.1", 1))))


def _ignore(_peer: str, _error: Exception) -> None:
    pass


def _take_contents(data: bytes) -> object:
    return _take(encode_link(sealed_contents(data)))


def _chain(data: bytes) -> object:
    """A list of claims; those that are objects get signed, each by who it says, or by alpha.h1."""
    items = from_json(data)
    if not isinstance(items, list) or len(items) > 8:
        return None
    tokens = [_token(item) for item in items]
    certificates = Certification(SEALERS["beta.h1"], cast(Any, KnownServers()), cast(Any, CLOCK))
    reader = CertificateReader(_signer_of, lambda: -math.inf, _signer_at_hand)
    certificates.reader = reader  # type: ignore[misc] # as far as bytes go
    # Three times: neither what is remembered must make a difference, nor whether somebody is asked who has signed.
    first = _passes(certificates, tokens)
    again = _passes(certificates, tokens)
    if repr(first) != repr(again):
        raise AssertionError(f"{first!r}, and then {again!r}")
    _check_followed(certificates, tokens, first)
    at_hand = _passes_at_hand(reader, tokens)
    if tokens and at_hand is not None and repr(first) != repr(at_hand):
        raise AssertionError(f"{first!r}, and at hand {at_hand!r}")
    for token in tokens[:1]:
        with suppress(MessageError):
            run_at_once(reader.read_untrusted(token, PassCertificate, Role.SIMSERVER))
        with suppress(MessageError):
            reader.at_hand_untrusted(token, PassCertificate, Role.SIMSERVER)
        with suppress(MessageError):
            run_at_once(reader.grant_untrusted(token, "alpha.e"))
    if isinstance(first, MessageError):
        raise first
    return first


def _passes(certificates: Certification, tokens: list[str]) -> object:
    try:
        return run_at_once(certificates.passes_untrusted(tokens, "alpha.e"))
    except MessageError as error:
        return error


def _check_followed(certificates: Certification, tokens: list[str], read: object) -> None:
    """Only a chain that breaks is taken up to there; whatever else is wrong with it is wrong here too."""
    expected: object = (read, False)
    if isinstance(read, BrokenChain):
        expected = ([step.model_dump(mode="json") for step in read.followed], True)
    elif isinstance(read, MessageError):
        expected = read
    try:
        followed: object = run_at_once(certificates.followed_untrusted(tokens, "alpha.e"))
    except MessageError as error:
        followed = error
    if repr(followed) != repr(expected):
        raise AssertionError(f"{followed!r}, and not {expected!r}")


def _passes_at_hand(reader: CertificateReader, tokens: list[str]) -> object:
    try:
        chain = reader.chain_at_hand_untrusted(tokens, "alpha.e")
    except MessageError as error:
        return error
    # Of whom nothing is known, nothing is at hand.
    return None if chain is None else [one.model_dump(mode="json") for one in chain[1]]


def _token(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    signer = item.get("source")
    name = signer if isinstance(signer, str) and signer in IDENTITIES else "alpha.h1"
    try:
        return jose.sign(item, sender_id=name, sender=IDENTITIES[name])
    except ValueError as error:
        raise NotPlain from error


async def _signer_of(name: str, kid: str) -> tuple[Role, PublicIdentity] | None:
    return _signer_at_hand(name, kid)


def _signer_at_hand(name: str, _kid: str) -> tuple[Role, PublicIdentity] | None:
    identity = IDENTITIES.get(name)
    role = Role.HOMESERVER if name.startswith("alpha.h") else Role.SIMSERVER
    return None if identity is None else (role, identity.public)


def _chain_seeds() -> list[bytes]:
    grant = {**CERTIFICATE, "kind": "delegation", "source": "alpha.h1"}
    passed = {**CERTIFICATE, "kind": "pass", "sub": 1}
    by_nobody = jose.sign(passed, sender_id="alpha.nobody", sender=next(iter(IDENTITIES.values())))
    return [to_json([grant, passed]), to_json([grant]), to_json(["not a token"]), to_json([grant, by_nobody])]


def _signed_log_position(data: bytes) -> None:
    """Claims that get signed by who they say, or by alpha.h1; twice, as what was read once is remembered."""
    row = SimpleNamespace(role=Role.HOMESERVER, keys=IDENTITIES["alpha.h1"].public.to_jwks())
    tree = SimpleNamespace(revision=100, get_or=lambda _path, default: default)
    store = SimpleNamespace(row={"alpha.h1": row}.get, tree=tree)
    clock = SimpleNamespace(unix_s=lambda: NOW_S)
    reader = LogPositions(
        SEALERS["alpha.h1"],
        cast(Any, store),
        lambda found: PublicIdentity.from_jwks_untrusted(found.keys),
        cast(Any, clock),
    )
    token = _token(from_json(data))
    # Under an office that this log has not had: said of what proves nothing, too.
    assert not reader.has_been_at_untrusted(token)
    witnessed = reader.witnessed_untrusted(token)
    assert witnessed == reader.witnessed_untrusted(token)
    read = reader.read_untrusted(token)
    assert read == reader.read_untrusted(token)
    assert read.revision == witnessed.revision


def _log_position_seeds() -> list[bytes]:
    here, abroad = LOG_POSITION.to_claims(), {**LOG_POSITION.to_claims(), "instance": "beta"}
    return [to_json(here), to_json(abroad), to_json(CERTIFICATE | {"log": "3.0f0f0f0f.90"})]


TARGETS = [
    Target(
        "rest-url",
        lambda data: tree_inputs.path_of_url_untrusted(_request(b"/v1/tree/" + data)),
        ["batonpass.homeserver.rest.tree_inputs:path_of_url_untrusted"],
        lambda: [b"a/b%2Fc", b"%ff"],
        TREE_ERRORS,
    ),
    Target(
        "rest-preconditions",
        _preconditions,
        ["batonpass.homeserver.rest.tree_inputs:preconditions_untrusted"],
        lambda: [b'"3.ab", "4"\n*', b"*"],
        TREE_ERRORS,
    ),
    Target(
        "rest-inputs",
        _inputs,
        [
            "batonpass.homeserver.rest.tree_inputs:pattern_untrusted",
            "batonpass.homeserver.rest.tree_inputs:conditions_untrusted",
            "batonpass.homeserver.rest.tree_inputs:keep_while_untrusted",
        ],
        lambda: [
            to_json(["a", ["if_name_matches", None]]),
            to_json([to_json_form(CONDITION.to_data())]),
            to_json([[["b"], CONDITION.to_data()]]),
            b'"a/*/**"',
        ],
        plain="json",
    ),
    Target(
        "rest-texts",
        _texts,
        [
            "batonpass.homeserver.rest.tree_inputs:path_from_json_untrusted",
            "batonpass.homeserver.rest.tree:_list_untrusted",
        ],
        lambda: [b'["a", "b"]', b"a/*/b", b'[["if_node_exists", true]]'],
    ),
    Target(
        "rest-import",
        _import,
        [
            "batonpass.homeserver.rest.transport:_lines_untrusted",
            "batonpass.homeserver.rest.transport:_read_line_untrusted",
            "batonpass.homeserver.rest.transport:_check_rows_untrusted",
        ],
        lambda: [b"\n".join(to_json(to_json_form(row)) for row in EXPORT)],
        (*TREE_ERRORS, ApiError),
    ),
    Target(
        "homeserver-link",
        _take,
        [
            "batonpass.homeserver.node.dispatch:HomeserverNode._take_untrusted",
            "batonpass.homeserver.transfer.parcels:Parcels.open_untrusted",
        ],
        lambda: [encode_link(parcel())],
        (MessageError, CryptoError),
        plain="cbor",
    ),
    Target(
        "homeserver-renewal",
        _take_renewal,
        ["batonpass.homeserver.failover.renewal_lane:RenewalResponder._opened_untrusted"],
        lambda: [encode_link(parcel())],
        (MessageError,),
        plain="cbor",
    ),
    Target(
        "homeserver-link-contents",
        _take_contents,
        [],
        lambda: [*message_seeds(), to_cbor(Spawned(entity="alpha.e", reason="").model_dump())],
        (MessageError,),
        plain="cbor",
        slow=True,
    ),
    Target(
        "homeserver-chain",
        _chain,
        [
            "batonpass.authority.trust.certificate_reader:_claimed_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader._reading_chain_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader._reading_grant_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader._reading_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader.at_hand_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader.chain_at_hand_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader.chain_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader.grant_untrusted",
            "batonpass.authority.trust.certificate_reader:CertificateReader.read_untrusted",
            "batonpass.homeserver.transfer.certificates:Certification.followed_untrusted",
            "batonpass.homeserver.transfer.certificates:Certification.passes_untrusted",
        ],
        _chain_seeds,
        (MessageError, Refused),
        plain="json",
    ),
    Target(
        "act",
        said_untrusted,
        ["batonpass.homeserver.overview.acts:said_untrusted"],
        lambda: [b'{"to": "alpha.s2", "proof": "x"}', b'{"rule": "ask", "allow": true, "by": "\\u0000"}', b"[1]"],
        plain="json",
    ),
    Target(
        "signed-log-position",
        _signed_log_position,
        [
            "batonpass.homeserver.log.log_positions:LogPositions.read_untrusted",
            "batonpass.homeserver.log.log_positions:LogPositions.witnessed_untrusted",
            "batonpass.homeserver.log.log_positions:LogPositions.has_been_at_untrusted",
            "batonpass.homeserver.log.log_positions:LogPositions._read_untrusted",
        ],
        _log_position_seeds,
        (MessageError,),
        plain="json",
    ),
]
