"""Whoever has seen the keys of a server once follows it through every change of them, and nobody else's."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.crypto import jose
from batonpass.crypto.continuity import (
    MAX_STATEMENTS,
    Pin,
    Published,
    Statement,
    first_pin,
    follow_untrusted,
    read_statement_untrusted,
    sign_reset,
    sign_successor,
)
from batonpass.crypto.errors import KeyConflict, Malformed
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity, PublicIdentity
from tests.budget import examples

NAME = "alpha.s1"
NOW_S = 1_700_000_000
HOME = Identity.generate()
THIEF = Identity.generate()
KEYS = [Identity.generate() for _ in range(5)]


def nobody(_: str) -> PublicIdentity | None:
    return None


def home_only(name: str) -> PublicIdentity | None:
    return HOME.public if name == "alpha.h1" else None


def successor(old: Published, signer: Identity, new: PublicIdentity, *, name: str = NAME) -> Published:
    statement = sign_successor(name, old, new, signer=signer, now_s=NOW_S)
    return Published(old.version + 1, new, (*old.statements, statement)[-MAX_STATEMENTS:])


def history() -> list[Published]:
    """Five versions of the keys of one server, each following on the one before."""
    identity = KEYS[0]
    versions = [Published(1, identity.public)]
    for fresh in KEYS[1:]:
        changed = identity.rotated(fresh, now_s=NOW_S + 100 * len(versions), overlap_s=50)
        versions.append(successor(versions[-1], identity.generations[0], changed.public))
        identity = changed
    return versions


HISTORY = history()


def pinned(version: int) -> Pin:
    return first_pin(NAME, HISTORY[version - 1])


def refused(shown: Published, pin: Pin, match: str, resetter: Callable[[str], PublicIdentity | None] = nobody) -> None:
    with pytest.raises(KeyConflict, match=match):
        follow_untrusted(NAME, shown, pin, resetter=resetter, now_s=NOW_S)


def test_every_later_version_is_followed_from_every_earlier_one() -> None:
    for known in range(1, 6):
        for later in range(known, 6):
            pin = follow_untrusted(NAME, HISTORY[later - 1], pinned(known), resetter=nobody, now_s=NOW_S)
            assert pin == pinned(later)


def test_an_earlier_version_is_refused_with_both_keys_and_the_remedy() -> None:
    refused(HISTORY[1], pinned(3), "version 2 is older")
    with pytest.raises(KeyConflict) as caught:
        follow_untrusted(NAME, HISTORY[0], pinned(3), resetter=nobody, now_s=NOW_S)
    for part in (NAME, KEYS[0].public.signing_kid, KEYS[2].public.signing_kid, f"baton keys forget {NAME}"):
        assert part in str(caught.value)


def test_two_views_of_one_version_are_not_both_believed() -> None:
    """Also when the server itself, or who has its old key, has signed both."""
    other = successor(HISTORY[0], KEYS[0], THIEF.public)
    assert follow_untrusted(NAME, other, pinned(1), resetter=nobody, now_s=NOW_S).keys == THIEF.public
    refused(other, pinned(2), "two different versions 2")
    refused(HISTORY[1], first_pin(NAME, other), "two different versions 2")
    refused(HISTORY[2], first_pin(NAME, other), "not vouched for|does not follow")
    refused(Published(1, THIEF.public), pinned(1), "two different versions 1")


def test_a_fork_that_comes_together_again_in_one_key_is_still_a_fork() -> None:
    """Same current key in both views, so signatures fit; only `parent` tells the histories apart."""
    one = KEYS[1].without(KEYS[1].public.signing_kid, now_s=NOW_S, fresh=KEYS[2]).public
    two = PublicIdentity(KEYS[2].public.signing, KEYS[2].public.agreement)
    left, right = successor(HISTORY[0], KEYS[0], one), successor(HISTORY[0], KEYS[0], two)
    follower = successor(right, KEYS[2], KEYS[3].public)
    assert follow_untrusted(NAME, follower, first_pin(NAME, right), resetter=nobody, now_s=NOW_S).version == 3
    refused(follower, first_pin(NAME, left), "version 3 does not follow on version 2")


def test_keys_that_the_one_before_did_not_sign_are_refused() -> None:
    refused(successor(HISTORY[0], THIEF, THIEF.public), pinned(1), "not vouched for")
    refused(Published(2, THIEF.public, HISTORY[1].statements), pinned(1), "other keys than are shown")
    refused(Published(2, THIEF.public), pinned(1), "1 to 16")
    refused(Published(7, HISTORY[1].keys, HISTORY[1].statements), pinned(1), "other keys than are shown")
    elsewhere = successor(Published(1, KEYS[0].public), KEYS[0], KEYS[1].public, name="alpha.s2")
    refused(elsewhere, pinned(1), "about other keys")


def test_a_statement_of_somebody_else_is_refused_also_when_he_is_known() -> None:
    statement = Statement(NAME, 2, THIEF.public.digest, THIEF.public.signing, pinned(1).head, NOW_S)
    token = jose.sign(statement.to_data(), sender=HOME, sender_id="alpha.h1")
    refused(Published(2, THIEF.public, (token,)), pinned(1), "it is no reset", home_only)


def test_a_revocation_cannot_be_taken_back() -> None:
    revoked = KEYS[0].without(KEYS[0].public.signing_kid, now_s=NOW_S, fresh=KEYS[1])
    second = successor(HISTORY[0], KEYS[0], revoked.public)
    assert follow_untrusted(NAME, second, pinned(1), resetter=nobody, now_s=NOW_S).keys == revoked.public
    third = successor(second, KEYS[1], KEYS[2].public)
    refused(third, first_pin(NAME, second), "a revocation was taken back")


def test_who_has_seen_nothing_for_too_long_has_to_be_told() -> None:
    identity, shown = KEYS[0], Published(1, KEYS[0].public)
    first = first_pin(NAME, shown)
    for turn in range(MAX_STATEMENTS + 1):
        fresh = KEYS[(turn + 1) % 5]
        shown, identity = successor(shown, identity, fresh.public), fresh
        if turn == MAX_STATEMENTS - 1:
            assert follow_untrusted(NAME, shown, first, resetter=nobody, now_s=NOW_S).version == MAX_STATEMENTS + 1
    assert len(shown.statements) == MAX_STATEMENTS
    refused(shown, first, "do not reach back from version 18 to the known version 1")


# Resets


def reset(old: Published, new: PublicIdentity, *, by: str = "alpha.h1", signer: Identity = HOME) -> Published:
    statement = sign_reset(NAME, old, new, signer=signer, signer_id=by, now_s=NOW_S, reason="the disk is lost")
    return Published(old.version + 1, new, (*old.statements, statement))


def test_a_homeserver_that_is_known_may_give_new_keys_to_a_server_that_lost_its_own() -> None:
    shown = reset(HISTORY[0], KEYS[3].public)
    assert follow_untrusted(NAME, shown, pinned(1), resetter=home_only, now_s=NOW_S).keys == KEYS[3].public
    assert read_statement_untrusted(shown.statements[0])[1].reset == "the disk is lost"
    after = successor(shown, KEYS[3], KEYS[4].public)
    assert follow_untrusted(NAME, after, pinned(1), resetter=home_only, now_s=NOW_S).version == 3


def test_a_reset_by_somebody_whose_keys_are_not_known_is_refused() -> None:
    refused(reset(HISTORY[0], KEYS[3].public), pinned(1), "alpha.h1 has reset it .*not known here")
    refused(reset(HISTORY[0], THIEF.public, signer=THIEF), pinned(1), "not vouched for", home_only)
    refused(reset(HISTORY[0], THIEF.public, by="alpha.h2", signer=THIEF), pinned(1), "not known here", home_only)
    refused(reset(HISTORY[0], THIEF.public, by=NAME, signer=KEYS[0]), pinned(1), "not known here", home_only)


@pytest.mark.parametrize("reason", ["", "x" * 201, "two\nlines"])
def test_a_reset_has_a_reason_that_fits_on_a_line(reason: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 printable"):
        sign_reset(NAME, HISTORY[0], THIEF.public, signer=HOME, signer_id="alpha.h1", now_s=NOW_S, reason=reason)


# What a liar can make of true statements


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_no_shuffling_of_true_statements_is_believed_except_the_truth(data: st.DataObject) -> None:
    """A relay has seen everything that was ever shown, of this server and of a thief's, and puts it together anew."""
    thiefs = [Published(1, THIEF.public)]
    for fresh in KEYS[:2]:
        thiefs.append(successor(thiefs[-1], THIEF, fresh.public))
    pool = [*HISTORY[-1].statements, *thiefs[-1].statements]
    keys = data.draw(st.sampled_from([one.keys for one in (*HISTORY, *thiefs)]))
    statements = tuple(data.draw(st.lists(st.sampled_from(pool), max_size=5)))
    shown = Published(data.draw(st.integers(0, 8)), keys, statements)
    known = data.draw(st.integers(1, 5))
    try:
        pin = follow_untrusted(NAME, shown, pinned(known), resetter=nobody, now_s=NOW_S)
    except KeyConflict:
        return
    assert pin == first_pin(NAME, HISTORY[pin.version - 1])
    assert pin.version >= known


@given(st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists, max_leaves=5), st.text(max_size=40))
def test_anything_that_is_no_statement_is_malformed(value: object, text: str) -> None:
    good = read_statement_untrusted(HISTORY[1].statements[0])[1].to_data()
    bad: list[Any] = [value, *({**good, field: value} for field in good)]
    for candidate in bad:
        try:
            read = Statement.from_data_untrusted(candidate)
        except Malformed:
            continue
        assert read.to_data() == candidate
    with pytest.raises(Malformed):
        read_statement_untrusted(text)
    refused(replace(HISTORY[1], statements=(text,)), pinned(1), "cannot be read")


def test_the_statements_of_a_store_are_followed(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    first = store.load_or_create_ring()
    pin = first_pin(NAME, first.published)
    store.rotate(NAME, now_s=NOW_S, overlap_s=60)
    store.revoke(NAME, first.identity.public.agreement_kid, now_s=NOW_S)
    third = store.load_ring()
    pin = follow_untrusted(NAME, third.published, pin, resetter=nobody, now_s=NOW_S)
    assert (pin.version, pin.keys) == (3, third.identity.public)
    assert first.identity.public.signing_kid in pin.keys.revoked


def test_a_store_goes_on_from_what_an_operator_has_set_for_its_keys(tmp_path: Path) -> None:
    old = HISTORY[4]
    store = KeyStore(tmp_path)
    mine = store.load_or_create_ring().identity
    shown = reset(old, PublicIdentity(mine.public.signing, mine.public.agreement, (), {old.keys.signing_kid: NOW_S}))
    adopted = store.adopt(shown)
    assert store.load_ring().published == shown == adopted.published
    after = store.rotate(NAME, now_s=NOW_S, overlap_s=60)
    assert follow_untrusted(NAME, after.published, first_pin(NAME, old), resetter=home_only, now_s=NOW_S).version == 7
    with pytest.raises(ValueError, match="is kept here"):
        store.adopt(old)
