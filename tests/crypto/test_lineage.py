"""What a server may revoke, and how an operator's reset ends whatever has been done with its keys."""

import pytest

from batonpass.crypto.continuity import (
    MAX_OWN_VERSION,
    MAX_VERSION,
    Pin,
    Published,
    Statement,
    first_pin,
    follow_untrusted,
    newest_reset_untrusted,
    read_statement_untrusted,
    sign_again,
    sign_reset,
    sign_successor,
)
from batonpass.crypto.errors import KeyConflict, Malformed
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.public_keys import MAX_REVOKED

NAME = "alpha.s1"
NOW_S = 1_700_000_000
HOME = Identity.generate()
HOME_LATER = HOME.rotated(Identity.generate(), now_s=NOW_S, overlap_s=3600)
HOME_ROBBED = HOME.without(HOME.public.signing_kid, now_s=NOW_S, fresh=Identity.generate())
NEW = Identity.generate()
THIEF = Identity.generate()


def published(identity: Identity, old: Published | None = None, signer: Identity | None = None) -> Published:
    """The version of `identity`'s keys that follows on `old`."""
    if old is None or signer is None:
        return Published(1, identity.public)
    token = sign_successor(NAME, old, identity.public, signer=signer, now_s=NOW_S)
    return Published(old.version + 1, identity.public, (*old.statements, token)[-16:])


def reset(
    old: Published, keys: PublicIdentity = NEW.public, *, signer: Identity = HOME, by: str = "alpha.h1"
) -> Published:
    token = sign_reset(NAME, old, keys, signer=signer, signer_id=by, now_s=NOW_S, reason="robbed")
    return Published(old.version + 1, keys, (*old.statements, token)[-16:])


def follow(shown: Published, pin: Pin, home: Identity = HOME, now_s: float = NOW_S) -> Pin:
    keys = {"alpha.h1": home.public}
    return follow_untrusted(NAME, shown, pin, resetter=keys.get, now_s=now_s)


def refused(shown: Published, pin: Pin, match: str, home: Identity = HOME, now_s: float = NOW_S) -> None:
    with pytest.raises(KeyConflict, match=match):
        follow(shown, pin, home, now_s)


def with_revoked(keys: PublicIdentity, *kids: str) -> PublicIdentity:
    return PublicIdentity(keys.signing, keys.agreement, keys.retiring, dict.fromkeys(kids, NOW_S) | dict(keys.revoked))


def robbed_often(times: int) -> tuple[list[Published], Identity]:
    """A server whose current keys were revoked so often, and all its versions."""
    identity = Identity.generate()
    versions = [published(identity)]
    for _ in range(times):
        fresh = Identity.generate()
        changed = identity.without(identity.public.signing_kid, now_s=NOW_S, fresh=fresh)
        versions.append(published(changed, versions[-1], identity.generations[0]))
        identity = changed
    return versions, identity


# Revocations


def test_only_keys_that_a_server_has_had_can_be_revoked() -> None:
    old = Identity.generate()
    first = published(old)
    made_up = with_revoked(NEW.public, THIEF.public.signing_kid)
    lie = Published(2, made_up, (sign_successor(NAME, first, made_up, signer=old, now_s=NOW_S),))
    refused(lie, first_pin(NAME, first), "revoked that were never there")
    true = with_revoked(NEW.public, *old.public.kids)
    truth = Published(2, true, (sign_successor(NAME, first, true, signer=old, now_s=NOW_S),))
    assert follow(truth, first_pin(NAME, first)).keys == true


def test_who_was_away_takes_the_revocations_there_can_have_been_and_no_more() -> None:
    """Of the versions between he knows the signing keys, and that each had one agreement key."""
    versions, identity = robbed_often(5)
    for known in versions:
        assert follow(versions[-1], first_pin(NAME, known)).version == 6
    signer = identity.generations[0]
    for made_up in range(1, 5):
        keys = with_revoked(identity.public, *(Identity.generate().public.signing_kid for _ in range(made_up)))
        lie = Published(7, keys, ())
        token = sign_successor(NAME, versions[-1], keys, signer=signer, now_s=NOW_S)
        lie = Published(7, keys, (*versions[-1].statements, token))
        for version in range(7 - made_up, 7):
            refused(lie, first_pin(NAME, versions[version - 1]), "revoked that were never there")


def test_a_revoked_key_does_not_come_back_by_leaving_it_out_for_a_moment() -> None:
    versions, identity = robbed_often(1)
    first_keys = versions[0].keys
    without = PublicIdentity(NEW.public.signing, NEW.public.agreement)
    token = sign_successor(NAME, versions[1], without, signer=identity.generations[0], now_s=NOW_S)
    between = Published(3, without, (*versions[1].statements, token))
    token = sign_successor(NAME, between, first_keys, signer=NEW, now_s=NOW_S)
    back = Published(4, first_keys, (*between.statements, token))
    refused(between, first_pin(NAME, versions[1]), "a revocation was taken back")
    refused(back, first_pin(NAME, versions[1]), "there again that was revoked")


# Resets


def test_a_server_that_has_revoked_all_it_can_is_reset_all_the_same() -> None:
    versions, identity = robbed_often(MAX_REVOKED // 2)
    assert len(identity.public.revoked) == MAX_REVOKED
    with pytest.raises(ValueError, match="baton keys reset"):
        identity.without(identity.public.signing_kid, now_s=NOW_S, fresh=NEW)
    keys = with_revoked(NEW.public, *identity.public.kids)
    shown = reset(versions[-1], keys)
    for known in (1, 2, MAX_REVOKED // 2 + 1):
        pin = follow(shown, first_pin(NAME, versions[known - 1]))
        assert len(pin.keys.revoked) == 2
    after = follow(published(*_revoking(shown, keys)), first_pin(NAME, shown))
    assert len(after.keys.revoked) == 4


def _revoking(shown: Published, keys: PublicIdentity) -> tuple[Identity, Published, Identity]:
    whole = Identity(NEW.signing, NEW.agreement, (), keys.revoked)
    return whole.without(NEW.public.signing_kid, now_s=NOW_S, fresh=Identity.generate()), shown, NEW


def test_a_reset_does_not_bring_back_what_was_revoked() -> None:
    versions, _ = robbed_often(1)
    refused(reset(versions[1], versions[0].keys), first_pin(NAME, versions[1]), "there again that was revoked")


def test_a_reset_revokes_no_more_than_was_good() -> None:
    first = published(Identity.generate())
    fits = with_revoked(NEW.public, *(Identity.generate().public.signing_kid for _ in range(8)))
    assert follow(reset(first, fits), first_pin(NAME, first)).version == 2
    too_many = with_revoked(fits, Identity.generate().public.signing_kid)
    refused(reset(first, too_many), first_pin(NAME, first), "revoked that were never there")


def test_a_reset_ends_a_fork() -> None:
    """Who has the stolen key showed some another version than the directory has; the reset is for all of them."""
    old = Identity.generate()
    first = published(old)
    left, right = published(NEW, first, old), published(THIEF, first, old)
    fresh = Identity.generate()
    shown = reset(left, fresh.public)
    for pinned in (first, left, right):
        assert follow(shown, first_pin(NAME, pinned)).keys == fresh.public
    later = published(Identity.generate(), shown, fresh)
    assert follow(later, first_pin(NAME, right)).version == 4


def test_a_reset_reaches_those_for_whom_there_were_too_many_versions() -> None:
    versions, _ = robbed_often(20)
    refused(versions[-1], first_pin(NAME, versions[0]), "do not reach back")
    assert follow(reset(versions[-1]), first_pin(NAME, versions[0])).version == 22


def test_what_only_looks_like_a_reset_lends_nothing_to_what_comes_before_it() -> None:
    """A liar signs a reset with any key, that names as its parent what he needs."""
    old, other = Identity.generate(), Identity.generate()
    first = published(old)
    here, fork = published(NEW, first, old), published(other, first, old)
    # The same current key in another history, so that signatures fit here as well as there.
    fork = published(NEW, fork, other)
    shown = published(Identity.generate(), fork, NEW)
    last = read_statement_untrusted(shown.statements[-1])[1]
    pin = Pin(3, first_pin(NAME, here).head, NEW.public)
    refused(shown, pin, "does not follow")
    fake = Statement(NAME, 4, THIEF.public.digest, THIEF.public.signing, last.parent, NOW_S, "x")
    token = sign_again(fake, signer=THIEF, signer_id="alpha.h1")
    for statements in ((token, shown.statements[-1]), (shown.statements[-1], token), (token, token)):
        refused(Published(4, shown.keys, statements), pin, "not vouched for|is none|not follow|about other keys")


@pytest.mark.parametrize(
    ("home", "now_s", "good"),
    [
        (HOME, NOW_S + 1e9, True),
        (HOME_LATER, NOW_S + 3599, True),
        (HOME_LATER, NOW_S + 3600, False),
        (HOME_ROBBED, NOW_S, False),
        (HOME_LATER.valid_at(NOW_S + 3600), NOW_S, False),
    ],
    ids=["current", "overlap", "overlap over", "revoked", "forgotten"],
)
def test_a_reset_counts_while_the_key_of_the_homeserver_is_good(home: Identity, now_s: float, good: bool) -> None:
    first = published(Identity.generate())
    shown, pin = reset(first), first_pin(NAME, first)
    if good:
        assert follow(shown, pin, home, now_s).version == 2
    else:
        refused(shown, pin, "not vouched for", home, now_s)


def test_another_key_can_vouch_for_a_reset_again_and_the_chain_stays() -> None:
    first = published(Identity.generate())
    shown = reset(first)
    later = published(Identity.generate(), shown, NEW)
    found = newest_reset_untrusted(later.statements)
    assert found is not None
    assert (found.at, found.signer, found.statement.reset) == (0, "alpha.h1", "robbed")
    refused(later, first_pin(NAME, first), "not vouched for", HOME_ROBBED)
    again = sign_again(found.statement, signer=HOME_ROBBED, signer_id="alpha.h1")
    vouched = Published(3, later.keys, (again, *later.statements[1:]))
    assert follow(vouched, first_pin(NAME, first), HOME_ROBBED).version == 3
    assert read_statement_untrusted(again)[1].head == found.statement.head


def test_a_server_cannot_use_up_the_versions_of_resets() -> None:
    old = Identity.generate()
    statement = Statement(NAME, MAX_OWN_VERSION, old.public.digest, old.public.signing, "0" * 64, NOW_S)
    last = Published(MAX_OWN_VERSION, old.public, (sign_again(statement, signer=old, signer_id=NAME),))
    with pytest.raises(ValueError, match="an operator has to reset"):
        sign_successor(NAME, last, NEW.public, signer=old, now_s=NOW_S)
    with pytest.raises(Malformed, match="are for resets"):
        Statement.from_data_untrusted(statement.to_data() | {"version": MAX_OWN_VERSION + 1})
    shown = reset(last)
    assert follow(shown, first_pin(NAME, last)).version == MAX_OWN_VERSION + 1
    with pytest.raises(ValueError, match="which are all there are"):
        reset(Published(MAX_VERSION, NEW.public, shown.statements))


def test_a_row_that_is_not_sound_can_be_reset() -> None:
    for unsound in (Published(2, THIEF.public), Published(3, THIEF.public, ("nonsense",))):
        shown = reset(unsound)
        assert first_pin(NAME, shown).keys == NEW.public
