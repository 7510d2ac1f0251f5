"""Certificates and their chains: only the holder of an entity can extend the chain, and only within the grant."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import (
    MAX_CHAIN,
    BrokenChain,
    CommitCertificate,
    DelegationGrant,
    PassCertificate,
    check_chain,
    token_hash,
)

GROUP = ("alpha.s1", "alpha.s2", "alpha.s3")
HASH = "a" * 64


def token_of(certificate: DelegationGrant | PassCertificate | CommitCertificate) -> str:
    """A stand-in for a signed token: chains only care that it is a text that cannot be made for others."""
    return json.dumps(certificate.to_claims(), sort_keys=True)


def grant(**changes: Any) -> DelegationGrant:
    fields: dict[str, Any] = {"entity": "alpha.e", "epoch": 3, "sub": 1, "holder": "alpha.s1", "group": GROUP}
    return DelegationGrant(**fields | changes)


def chain_of(given: DelegationGrant, *targets: str) -> list[tuple[str, PassCertificate]]:
    """Passes from the grant's holder to each target in turn, as honest holders make them."""
    chain: list[tuple[str, PassCertificate]] = []
    source, fence, parent = given.holder, given.fence, token_hash(token_of(given))
    for number, target in enumerate(targets):
        fence = fence.passed()
        step = PassCertificate(
            entity=given.entity,
            epoch=fence.epoch,
            sub=fence.sub,
            transfer_id=f"transfer-{number}",
            source=source,
            target=target,
            tick=number,
            state_hash=HASH,
            parent=parent,
        )
        chain.append((token_of(step), step))
        source, parent = target, token_hash(chain[-1][0])
    return chain


def retold(step: PassCertificate, **changes: Any) -> tuple[str, PassCertificate]:
    changed = step.model_copy(update=changes)
    return token_of(changed), changed


# --- chains -----------------------------------------------------------------------------------------------------------


def test_a_grant_alone_leads_to_its_own_fence() -> None:
    assert check_chain(grant(), token_of(grant()), []) == Fence(3, 1)


@given(st.lists(st.sampled_from(GROUP), max_size=8))
def test_each_pass_leads_one_sub_epoch_on(targets: list[str]) -> None:
    assert check_chain(grant(), token_of(grant()), chain_of(grant(), *targets)) == Fence(3, 1 + len(targets))


FORGERIES: dict[str, dict[str, Any]] = {
    "of another entity": {"entity": "alpha.other"},
    "by one who does not hold it": {"source": "alpha.s3"},
    "that follows from nothing": {"parent": "b" * 64},
    "to outside the group": {"target": "alpha.s9"},
    "that skips a sub-epoch": {"sub": 4},
    "under the fence it had": {"sub": 2},
    "of another epoch": {"epoch": 4},
}


@pytest.mark.parametrize("changes", FORGERIES.values(), ids=list(FORGERIES))
def test_a_chain_breaks_at_a_pass(changes: dict[str, Any]) -> None:
    first, second = chain_of(grant(), "alpha.s2", "alpha.s3")
    with pytest.raises(BrokenChain, match=r"does not follow|outside its grant") as broken:
        check_chain(grant(), token_of(grant()), [first, retold(second[1], **changes)])
    assert broken.value.followed == (first[1],)


def test_the_first_pass_must_name_the_very_grant() -> None:
    passes = chain_of(grant(), "alpha.s2")
    wider = grant(group=(*GROUP, "alpha.s9"))
    with pytest.raises(MessageError, match="does not follow"):
        check_chain(wider, token_of(wider), passes)


def test_passes_cannot_be_swapped_left_out_or_told_twice() -> None:
    a, b, c = chain_of(grant(), "alpha.s2", "alpha.s1", "alpha.s2")
    for broken in ([b, a, c], [a, c], [b, c], [a, a, b, c]):
        with pytest.raises(MessageError):
            check_chain(grant(), token_of(grant()), broken)


def test_a_chain_is_bounded() -> None:
    longest = chain_of(grant(), *(["alpha.s2", "alpha.s1"] * MAX_CHAIN)[:MAX_CHAIN])
    assert check_chain(grant(), token_of(grant()), longest).sub == 1 + MAX_CHAIN
    with pytest.raises(BrokenChain, match="longer than 64") as broken:
        check_chain(grant(), token_of(grant()), [*longest, longest[-1]])
    assert broken.value.followed == tuple(step for _, step in longest)


# --- claims -----------------------------------------------------------------------------------------------------------

COMMIT = CommitCertificate(
    entity="alpha.e",
    epoch=4,
    sub=0,
    transfer_id="transfer-1",
    source="alpha.s1",
    target="beta.s1",
    tick=7,
    state_hash=HASH,
)


@pytest.mark.parametrize("certificate", [COMMIT, grant(), chain_of(grant(), "alpha.s2")[0][1]])
def test_what_was_signed_is_what_is_read(certificate: CommitCertificate | DelegationGrant | PassCertificate) -> None:
    assert type(certificate).from_claims_untrusted(json.loads(token_of(certificate))) == certificate


def test_a_commit_knows_the_fence_that_it_gives() -> None:
    assert COMMIT.fence == Fence(4, 0)


def test_a_claim_of_a_later_version_is_no_error() -> None:
    assert CommitCertificate.from_claims_untrusted(COMMIT.to_claims() | {"note": "more"}) == COMMIT


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "pass"},
        {"epoch": -1},
        {"epoch": 2**63},
        {"epoch": "4"},
        {"epoch": 4.0},
        {"sub": True},
        {"tick": -1},
        {"tick": 10**5000},
        {"transfer_id": "short"},
        {"transfer_id": "no spaces"},
        {"entity": "alpha.e\n"},
        {"target": "nobody"},
        {"state_hash": "A" * 64},
        {"state_hash": "a" * 63},
        {"source": None},
        {"source": b"alpha.s1"},
    ],
)
def test_anything_else_is_no_certificate(changes: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="not a CommitCertificate"):
        CommitCertificate.from_claims_untrusted(COMMIT.to_claims() | changes)


@pytest.mark.parametrize("group", [[], ["alpha.s1"], [f"alpha.s{n}" for n in range(17)], ["alpha.s1", "x"]])
def test_a_grant_names_two_to_sixteen_servers(group: list[str]) -> None:
    with pytest.raises(MessageError, match="not a DelegationGrant"):
        DelegationGrant.from_claims_untrusted(grant().to_claims() | {"group": group})


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_hostile_claims_are_no_certificate(claims: object) -> None:
    for kind in (CommitCertificate, DelegationGrant, PassCertificate):
        with pytest.raises(MessageError):
            kind.from_claims_untrusted(claims)


def test_one_kind_never_passes_for_another() -> None:
    certificates = (COMMIT, grant(), chain_of(grant(), "alpha.s2")[0][1])
    for certificate in certificates:
        for other in certificates:
            if other is not certificate:
                with pytest.raises(MessageError):
                    type(other).from_claims_untrusted(certificate.to_claims())
