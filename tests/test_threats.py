"""docs/reference/threats.md: every test that it names is there. And the defences that belong to no one package."""

import itertools
import json
import random
import re
import ssl
import tracemalloc
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from batonpass.actors.link import LinkSettings
from batonpass.actors.link.frames import MIN_PIECE_BYTES, DatagramKind, piece_head, write_header
from batonpass.actors.net.inbox import Received
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import Role
from batonpass.authority.wire.transfer import encode_link
from batonpass.crypto import jose
from batonpass.crypto.errors import Malformed
from batonpass.crypto.session import HELLO_BYTES, _hello_mac, read_hello_untrusted
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.tree.net.certificates import Credentials
from batonpass.tree.net.tls import TlsFailed, TlsSession
from tests.actors.link.network import IDENTITIES, Network, Transit
from tests.collected import collected
from tests.fuzz.targets.for_actors import joined_ends
from tests.fuzz.targets.for_authority import CERTIFICATE, parcel
from tests.fuzz.targets.for_homeserver import FakeNode, run_at_once
from tests.fuzz.world import IDENTITIES as SERVERS
from tests.simserver.ports import held_lease, ports_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "threats.md"
NAMED = sorted(set(re.findall(r"`(tests/[^`]*?)::([^`]*)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part)
def test_every_test_that_the_page_names_can_be_run_by_that_name(file: str, name: str) -> None:
    assert name in collected(file), f"pytest collects no {file}::{name}"


def test_every_threat_has_a_defence_what_remains_and_a_test() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    threats = [section for section in sections if "**What he can do**" in section]
    assert len(threats) >= 11
    for section in threats:
        title = section.partition("\n")[0]
        assert "**Defence**" in section, title
        assert "**What remains**" in section, title
        assert re.search(r"`tests/[\w/]+\.py::[\w:]+`", section), title


# --- spoofing ---------------------------------------------------------------------------------------------------------


def test_a_good_parcel_from_another_peer_is_refused() -> None:
    """It is sealed and signed as it should be; but whoever has sent it over his own link is somebody else."""
    message = encode_link(parcel())
    assert run_at_once(_take(message, "alpha.h1")) is None
    with pytest.raises(MessageError, match=r"sealed by alpha.h1, not by the peer"):
        run_at_once(_take(message, "alpha.s1"))


def _take(message: bytes, peer: str) -> Coroutine[Any, Any, object]:
    return HomeserverNode._take_untrusted(cast(Any, FakeNode()), Received(peer, message, 0, ("10.0.0.1", 1)))


# --- downgrade --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_handshake_of_another_version_is_refused_though_its_mac_fits(version: int) -> None:
    """There is one version and one suite, so there is nothing to choose from, and nothing to talk anybody down to."""
    joined = _opened()
    hello = next(one.datagram[16:] for one in joined.history if one.datagram[0] == DatagramKind.HELLO)
    keys = IDENTITIES["beta"].public
    covered = bytes([version]) + hello[1 : HELLO_BYTES - 16]
    with pytest.raises(Malformed, match="version"):
        read_hello_untrusted(covered + _hello_mac(keys, covered), responder="beta", responder_keys=keys)


def test_members_do_not_speak_an_older_tls(tmp_path: Path) -> None:
    server, client = (
        Credentials(tmp_path / name, b"s" * 32, kind="homeserver", instance="alpha", name=name) for name in "ab"
    )
    old = client.client_context
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    ends = TlsSession(old, server_side=False), TlsSession(server.server_context, server_side=True)
    ends[0].feed_untrusted(b"")
    with pytest.raises(TlsFailed):
        ends[1].feed_untrusted(ends[0].outgoing())


# --- stolen keys ------------------------------------------------------------------------------------------------------


def test_the_static_keys_do_not_open_what_was_recorded_before_they_were_stolen() -> None:
    """Every secret that a thief can make of them and of what was on the wire, as the keys of a session are made."""
    recording = json.loads((ROOT / "tests/vectors/link/first-messages.json").read_text(encoding="ascii"))
    datagrams = [bytes.fromhex(datagram["bytes"]) for datagram in recording["datagrams"]]
    hello, accept = (
        next(one[16:] for one in datagrams if one[0] == kind) for kind in (DatagramKind.HELLO, DatagramKind.ACCEPT)
    )
    data = [one for one in datagrams if one[0] == DatagramKind.DATA]
    kids = "".join(
        IDENTITIES[name].public.signing_kid + IDENTITIES[name].public.agreement_kid for name in ("alpha", "beta")
    )
    transcript = hashes.Hash(hashes.SHA256())
    transcript.update(hello[:-80] + accept[:-80] + kids.encode("ascii"))
    salt = transcript.finalize()
    stolen = [key for identity in IDENTITIES.values() for key in (identity.signing, identity.agreement)]
    points = [
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw) for raw in (hello[17:82], accept[13:78])
    ]
    others = [key.public_key() for key in stolen]
    # The control: with an ephemeral key it opens.
    ephemeral = [ec.derive_private_key(int(key, 16), ec.SECP256R1()) for key in recording["ephemeral_private_keys"]]
    assert any(_opens(data, key, point, salt) for key in ephemeral for point in points)
    assert not any(_opens(data, key, point, salt) for key in stolen for point in (*points, *others))


def _opens(
    data: list[bytes], private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey, salt: bytes
) -> bool:
    secret = private.exchange(ec.ECDH(), public)
    keys = HKDF(hashes.SHA256(), length=40, salt=salt, info=b"batonpass link keys 1").derive(secret)
    for datagram, (key, head) in itertools.product(data, ((keys[:16], keys[32:36]), (keys[16:32], keys[36:]))):
        try:
            AESGCM(key).decrypt(head + datagram[8:16], datagram[16:], datagram[:16])
        except InvalidTag:
            continue
        return True
    return False


# --- reflection and exhaustion ----------------------------------------------------------------------------------------


def _opened() -> Network:
    joined = Network(seed=3)
    joined.send(joined.alpha, b"hello")
    joined.run(lambda: joined.beta.received != [])
    return joined


@pytest.mark.parametrize("seed", range(20))
def test_whoever_sends_without_keys_gets_less_than_he_sends(seed: int) -> None:
    """Recorded, cut, changed and made-up datagrams from a false address, thousands of them, over a minute."""
    joined = _opened()
    rng = random.Random(seed)
    recorded = [transit.datagram for transit in joined.history if transit.destination == joined.beta.address]
    mallory = ("6.6.6.6", 666)
    sent_bytes = 0
    for _ in range(300):
        datagram = bytearray(
            rng.choice([*recorded, write_header(rng.choice(list(DatagramKind)), 7, 1) + rng.randbytes(99)])
        )
        if rng.random() < 0.5:
            datagram[rng.randrange(len(datagram))] ^= 1 << rng.randrange(8)
        joined.deliver_in(rng.random() * 60, Transit(mallory, joined.beta.address, bytes(datagram)))
        sent_bytes += len(datagram)
    joined.run_for(61.0)
    received_bytes = sum(len(transit.datagram) for transit in joined.history if transit.destination == mallory)
    assert received_bytes < sent_bytes
    assert joined.beta.link.address == joined.alpha.address


def test_a_hello_without_the_mac_costs_no_key_and_no_memory() -> None:
    joined = _opened()
    beta = joined.beta
    before = set(beta.ids.used)
    drawn = beta.rng.getstate()
    for number in range(1000):
        noise = random.Random(number).randbytes(HELLO_BYTES - 1)
        datagram = write_header(DatagramKind.HELLO, 0, 0) + b"\x01" + noise
        beta.link.receive(datagram, joined.now, ("6.6.6.6", 666))
    assert beta.rng.getstate() == drawn, "no ephemeral key was drawn"
    assert set(beta.ids.used) == before
    assert beta.counters["dropped_malformed"] >= 1000


def test_a_thousand_messages_begun_and_never_ended_hold_no_more_than_the_credit() -> None:
    """A peer with good keys sends the first piece of each, which says that the whole has a megabyte."""
    alpha, beta = joined_ends()
    session = alpha.link._sessions.current
    assert session is not None
    tracemalloc.start()
    try:
        for number in range(1000):
            header = write_header(DatagramKind.DATA, session.peer_session_id, 1000 + number)
            body = piece_head(number % 16, 1 + number // 16, 1_000_000, MIN_PIECE_BYTES, 0) + bytes(MIN_PIECE_BYTES)
            beta.link.receive(header + session.session.seal(1000 + number, header, body), 1.0, ("10.0.0.1", 1))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < 1000 - beta.counters["dropped_violation"] <= LinkSettings().window_bytes // 1_000_000
    assert held_bytes < LinkSettings().window_bytes + 1_000_000


# --- a malicious homeserver -------------------------------------------------------------------------------------------


class _Home:
    """Two homeservers of two instances, and what the directory says of them."""

    async def row(self, name: str) -> object:
        return SimpleNamespace(role=Role.HOMESERVER if ".h" in name else Role.SIMSERVER)

    async def keys_of(self, name: str, kid: str = "") -> object:
        return SERVERS[name].public


def _arrivals() -> Arrivals:
    parts: dict[str, Any] = dict.fromkeys(("holdings", "departures", "reception", "stages"))
    return Arrivals(ports_of("alpha.s2", home=_Home()), held_lease(), **parts)


def _signed(by: str, **changes: Any) -> str:
    return jose.sign({**CERTIFICATE, **changes}, sender=SERVERS[by], sender_id=by)


def test_only_the_entitys_own_home_instance_can_give_it_away() -> None:
    commit = _arrivals()._commit_certificate
    assert run_at_once(commit(_signed("alpha.h1"))) is not None
    with pytest.raises(MessageError, match="not from its home instance"):
        run_at_once(commit(_signed("beta.h1")))
    with pytest.raises(MessageError, match="no known homeserver"):
        run_at_once(commit(_signed("alpha.s1")))
    with pytest.raises(MessageError, match="names beta"):
        run_at_once(commit(_signed("alpha.h1", target="beta.s9")))


def test_only_the_entitys_own_home_instance_can_delegate_it() -> None:
    with pytest.raises(MessageError, match="not from its home instance"):
        run_at_once(_arrivals().certificates.grant_untrusted(_signed("beta.h1", kind="delegation"), "alpha.e"))
