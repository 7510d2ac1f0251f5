"""Reading certificates: what is known is not verified again, but never outlives the key or the office of its signer."""

from typing import Any

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Role
from batonpass.authority.trust import certificate_reader, certificates
from batonpass.authority.trust.certificate_reader import CertificateReader
from batonpass.authority.trust.certificates import (
    BrokenChain,
    CommitCertificate,
    DelegationGrant,
    PassCertificate,
    Renewals,
    UnprovenChain,
    shortened,
    token_hash,
)
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity, PublicIdentity
from tests.fuzz.targets.for_homeserver import run_at_once

HOME, OTHER_HOME, S1, S2 = "alpha.h1", "beta.h1", "alpha.s1", "alpha.s2"
KEYS = {name: Identity.generate() for name in (HOME, OTHER_HOME, S1, S2)}
BALL, HASH = "alpha.ball", "a" * 64


class Directory:
    """Who is who; keys are revoked by taking them out of here."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Role, PublicIdentity]] = {
            name: (Role.HOMESERVER if ".h" in name else Role.SIMSERVER, keys.public) for name, keys in KEYS.items()
        }
        self.reader = CertificateReader(self.signer_of, lambda: 0.0)

    async def signer_of(self, name: str, kid: str) -> tuple[Role, PublicIdentity] | None:
        return self.rows.get(name)

    def read(self, token: str, kind: Any = DelegationGrant, role: Role = Role.HOMESERVER) -> Any:
        return run_at_once(self.reader.read_untrusted(token, kind, role))

    def chain(self, *tokens: str) -> Any:
        return run_at_once(self.reader.chain_untrusted(tokens, BALL))


def signed(certificate: DelegationGrant | PassCertificate, by: str) -> str:
    return jose.sign(certificate.to_claims(), sender=KEYS[by], sender_id=by)


def grant(by: str = HOME, **changes: Any) -> str:
    fields: dict[str, Any] = {"entity": BALL, "epoch": 1, "sub": 0, "holder": S1, "group": (S1, S2)}
    return signed(DelegationGrant(**fields | changes), by)


def passed(parent: str, sub: int, **changes: Any) -> str:
    source, target = (S1, S2) if sub % 2 else (S2, S1)
    fields: dict[str, Any] = {"entity": BALL, "epoch": 1, "sub": sub, "source": source, "target": target}
    fields |= {"transfer_id": f"transfer-{sub}", "tick": sub, "state_hash": HASH, "parent": token_hash(parent)}
    return signed(PassCertificate(**fields | changes), source)


def chain_of(passes: int) -> list[str]:
    chain = [grant()]
    for sub in range(1, passes + 1):
        chain.append(passed(chain[-1], sub))
    return chain


def test_what_is_known_says_the_same_again_and_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, token = Directory(), grant()
    first = directory.read(token)
    monkeypatch.setattr(jose, "verify_untrusted", lambda *_, **__: pytest.fail("it is known"))
    assert directory.read(token) == first


def test_what_is_known_is_refused_once_its_key_is_not_good_any_more() -> None:
    directory, token = Directory(), grant()
    directory.read(token)
    directory.rows[HOME] = (Role.HOMESERVER, Identity.generate().public)
    with pytest.raises(MessageError, match="does not verify"):
        directory.read(token)
    directory.rows[HOME] = (Role.SIMSERVER, KEYS[HOME].public)
    with pytest.raises(MessageError, match="no known homeserver"):
        directory.read(token)
    del directory.rows[HOME]
    with pytest.raises(MessageError, match="no known homeserver"):
        directory.read(token)


def test_what_is_known_as_one_kind_is_no_other() -> None:
    directory, token = Directory(), grant()
    directory.read(token)
    for kind in (CommitCertificate, PassCertificate):
        with pytest.raises(MessageError, match="not a"):
            directory.read(token, kind)


def test_what_does_not_verify_is_not_remembered() -> None:
    directory, token = Directory(), grant(by=S1)
    for _ in range(2):
        with pytest.raises(MessageError):
            directory.read(token)
    assert len(directory.reader._known) == 0


def test_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_reader, "MAX_KNOWN", 2)
    directory, tokens = Directory(), [grant(sub=sub) for sub in range(3)]
    for token in (tokens[0], tokens[1], tokens[0], tokens[2]):
        directory.read(token)
    assert list(directory.reader._known) == [tokens[0], tokens[2]]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_chain_with_a_key_that_is_not_good_is_unproven_whichever_it_is(place: int) -> None:
    directory, chain = Directory(), chain_of(3)
    directory.chain(*chain)
    gone = S1 if place else HOME
    for public in (Identity.generate().public, None):
        if public is None:
            del directory.rows[gone]
        else:
            directory.rows[gone] = (directory.rows[gone][0], public)
        with pytest.raises(UnprovenChain) as caught:
            directory.chain(*chain)
        assert (caught.value.last.epoch, caught.value.last.sub, caught.value.last.transfer_id) == (1, 3, "transfer-3")


def test_a_chain_of_which_more_is_wrong_than_a_key_is_no_unproven_one() -> None:
    """Nobody looks for what cannot have happened."""
    directory, chain = Directory(), chain_of(2)
    other = passed(chain[-1], 3, epoch=7)
    directory.rows[HOME] = (Role.HOMESERVER, Identity.generate().public)
    for tokens in ([*chain, other], [chain[0], chain[2]], [chain[0], chain[0]], [chain[0], "a.b.c"]):
        with pytest.raises(MessageError) as caught:
            directory.chain(*tokens)
        assert not isinstance(caught.value, UnprovenChain | BrokenChain)
    body, _, mark = chain[1].rpartition(".")
    with pytest.raises(MessageError) as caught:
        directory.chain(chain[0], f"{body}.{mark[::-1]}")
    assert not isinstance(caught.value, UnprovenChain), "a signature that does not fit was never good"


def test_a_chain_is_the_homes_grant_and_passes_of_their_sources() -> None:
    directory, chain = Directory(), chain_of(3)
    given, passes = directory.chain(*chain)
    assert given.holder == S1
    assert [step.sub for step in passes] == [1, 2, 3]
    with pytest.raises(MessageError, match="no pass"):
        directory.chain(chain[0])
    other = grant(OTHER_HOME)
    with pytest.raises(MessageError, match="home instance"):
        directory.chain(other, passed(other, 1))
    first = PassCertificate.from_claims_untrusted(jose.verify_untrusted(chain[1], sender=KEYS[S1].public))
    with pytest.raises(MessageError, match="signed by another"):
        directory.chain(chain[0], signed(first, S2))
    with pytest.raises(MessageError, match="does not follow"):
        directory.chain(chain[0], chain[2])


def test_of_a_chain_that_came_before_only_what_is_new_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, chain = Directory(), chain_of(4)
    directory.chain(*chain[:3])
    checked: list[int] = []
    check = certificates.check_chain

    def counted(first: Any, token: str, new: Any, known: Any) -> Fence:
        checked.append(len(new))
        return check(first, token, new, known)

    monkeypatch.setattr(certificate_reader, "check_chain", counted)
    _, passes = directory.chain(*chain)
    assert [step.sub for step in passes] == [1, 2, 3, 4]
    assert directory.chain(*chain)[1] == passes
    assert checked == [2, 0]
    with pytest.raises(MessageError, match="does not follow"):
        directory.chain(*chain, passed(chain[3], 5))
    with pytest.raises(MessageError, match="outside its grant"):
        directory.chain(*chain, passed(chain[4], 5, target="alpha.s9"))
    # Another beginning is no beginning of this one, whatever follows from it.
    with pytest.raises(MessageError, match="does not follow"):
        directory.chain(grant(owner="alpha.ada"), *chain[1:])
    assert directory.chain(*chain[:2])[1] == passes[:1]


def test_a_chain_that_came_before_is_refused_once_one_of_its_signers_is_not_good_any_more() -> None:
    for name, text in ((HOME, "does not verify"), (S1, "does not verify"), (S2, "does not verify")):
        directory, chain = Directory(), chain_of(3)
        directory.chain(*chain)
        role, keys = directory.rows[name]
        directory.rows[name] = (role, Identity.generate().public)
        with pytest.raises(MessageError, match=text):
            directory.chain(*chain)
        directory.rows[name] = (Role.PLAYER, keys)
        with pytest.raises(MessageError, match="no known"):
            directory.chain(*chain)
        directory.rows[name] = (role, keys)
        assert len(directory.chain(*chain)[1]) == 3


def test_few_short_chains_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_reader, "MAX_CHAINS", 2)
    directory, chain = Directory(), chain_of(9)
    directory.chain(*chain[:8])
    assert list(directory.reader._chains) == [BALL]
    directory.chain(*chain)
    assert list(directory.reader._chains) == []
    for name in ("alpha.a", "alpha.b", "alpha.c"):
        token = grant(entity=name)
        run_at_once(directory.reader.chain_untrusted([token, passed(token, 1, entity=name)], name))
    assert list(directory.reader._chains) == ["alpha.b", "alpha.c"]


def test_what_was_signed_here_is_not_verified_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, chain = Directory(), chain_of(1)
    directory.read(chain[0])
    said = PassCertificate.from_claims_untrusted(jose.verify_untrusted(chain[1], sender=KEYS[S1].public))
    directory.reader.signed(chain[1], S1, KEYS[S1].public.signing_kid, said)
    monkeypatch.setattr(jose, "verify_untrusted", lambda *_, **__: pytest.fail("it was signed here"))
    assert directory.chain(*chain)[1] == [said]
    directory.rows[S1] = (Role.SIMSERVER, Identity.generate().public)
    with pytest.raises(MessageError, match="does not verify"):
        directory.chain(*chain)


def said_by(token: str, signer: str) -> PassCertificate:
    return PassCertificate.from_claims_untrusted(jose.verify_untrusted(token, sender=KEYS[signer].public))


def test_a_chain_that_goes_on_from_here_is_known_when_it_comes_back_but_for_its_last_pass() -> None:
    directory, chain = Directory(), chain_of(3)
    directory.chain(*chain[:2])
    kid = KEYS[S2].public.signing_kid
    directory.reader.signed(chain[2], S2, kid, said_by(chain[2], S2), chain[:2])
    assert directory.reader._chains[BALL].tokens == chain[:3]
    assert directory.chain(*chain)[1][:2] == [said_by(chain[1], S1), said_by(chain[2], S2)]
    # Whose key is not good any more is not believed for that it is known.
    directory.rows[S2] = (Role.SIMSERVER, Identity.generate().public)
    with pytest.raises(MessageError, match="does not verify"):
        directory.chain(*chain)


def test_what_does_not_go_on_from_a_known_chain_is_not_remembered_with_it() -> None:
    directory, chain = Directory(), chain_of(3)
    directory.chain(*chain[:2])
    kid = KEYS[S1].public.signing_kid
    directory.reader.signed(chain[3], S1, kid, said_by(chain[3], S1), chain[:2])
    directory.reader.signed(chain[2], S2, KEYS[S2].public.signing_kid, said_by(chain[2], S2), chain[:1])
    assert directory.reader._chains[BALL].tokens == chain[:2]


def test_a_chain_is_read_without_asking_when_all_who_signed_it_are_known() -> None:
    directory, chain = Directory(), chain_of(2)
    known: dict[str, tuple[Role, PublicIdentity]] = {}
    reader = CertificateReader(directory.signer_of, lambda: 0.0, lambda name, _kid: known.get(name))
    for name in (HOME, S1):
        assert reader.chain_at_hand_untrusted(chain, BALL) is None
        known[name] = directory.rows[name]
    assert reader.chain_at_hand_untrusted(chain, BALL) is None
    known[S2] = directory.rows[S2]
    assert reader.chain_at_hand_untrusted(chain, BALL) == directory.chain(*chain)
    with pytest.raises(MessageError, match="does not follow"):
        reader.chain_at_hand_untrusted([chain[0], chain[2]], BALL)


# --- renewals ---------------------------------------------------------------------------------------------------------


def renewal(chain: list[str], upto: int, **changes: Any) -> tuple[str, DelegationGrant]:
    """The home instance has learned of the passes up to this one."""
    token = grant(sub=upto, holder=S2 if upto % 2 else S1, replaces=token_hash(chain[upto]), **changes)
    return token, DelegationGrant.from_claims_untrusted(jose.verify_untrusted(token, sender=KEYS[HOME].public))


def test_a_renewed_grant_stands_for_the_chain_that_it_replaces() -> None:
    directory, chain = Directory(), chain_of(4)
    token, _ = renewal(chain, 2)
    shorter = shortened(chain, token, token_hash(chain[2]))
    assert shorter == (token, chain[3], chain[4])
    given, passes = directory.chain(*shorter)
    assert (given.sub, [step.sub for step in passes]) == (2, [3, 4])


def test_a_renewed_grant_stands_for_no_other_chain() -> None:
    directory, chain = Directory(), chain_of(4)
    token, _ = renewal(chain, 2)
    for wrong in ([token, chain[4]], [token, chain[2]], [grant(sub=2, holder=S1), chain[3]]):
        with pytest.raises(MessageError, match="does not follow"):
            directory.chain(*wrong)
    other = chain_of(2)
    assert shortened(other, token, token_hash(chain[3])) == tuple(other)


def test_the_latest_renewal_is_kept_and_used_within_its_group_only() -> None:
    renewals, chain = Renewals(), chain_of(4)
    assert renewals.applied(BALL, chain, (S1, S2)) == tuple(chain)
    late, early = renewal(chain, 3), renewal(chain, 1)
    renewals.keep(BALL, *late)
    renewals.keep(BALL, *early)
    renewals.keep(BALL, grant(sub=4), DelegationGrant(entity=BALL, epoch=1, sub=4, holder=S1, group=(S1, S2)))
    assert late[1].fence == Fence(1, 3)
    assert renewals.applied(BALL, chain, (S1, S2)) == (late[0], chain[4])
    assert renewals.applied(BALL, chain, (S1, S2, "alpha.s3")) == tuple(chain)
    assert renewals.applied("alpha.other", chain, (S1, S2)) == tuple(chain)
