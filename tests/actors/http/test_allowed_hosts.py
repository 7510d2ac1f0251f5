"""Under which names a server is asked, and what browsers are told of its answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.http.allowed_hosts import ANY_HOST, host_of, hosts_of_origins, is_allowed_host
from batonpass.actors.http.request_scope import guarded
from tests.budget import examples

NAMES = frozenset(("alpha.example", "h1"))


@pytest.mark.parametrize(
    "authority",
    [
        "127.0.0.1", "127.0.0.1:7100", "10.1.2.3:80", "[::1]", "[::1]:7100", "[fd00::7]:80", "localhost",
        "LocalHost:80", "localhost.", "game.localhost:80", "alpha.example", "ALPHA.example.:7100", "h1:80",
    ],
)  # fmt: skip
def test_a_server_is_asked_by_its_address_as_localhost_and_under_its_names(authority: str) -> None:
    assert is_allowed_host(authority, NAMES)


@pytest.mark.parametrize(
    "authority",
    [
        "", ":80", ".", "evil.example", "evil.example:7100", "alpha.example.evil.example", "x.alpha.example", "h11",
        "127.0.0.1.evil.example", "evillocalhost", "localhost.evil.example", "127.0.0.1@evil.example", "a@127.0.0.1",
        "[::1", "::1", "[evil.example]", "127.0.0.1:port", "127.0.0.1:99999", "127.0.0.1/", "127.0.0.1?", "127.0.0.1#",
        "0x7f.1", "127.1", "2130706433", "127.0.0.1 evil.example", "evil.example\\@127.0.0.1",
    ],
)  # fmt: skip
def test_it_is_asked_under_no_other_name(authority: str) -> None:
    assert not is_allowed_host(authority, NAMES)
    assert is_allowed_host(authority, {ANY_HOST})


@settings(max_examples=examples(200))
@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_whatever_a_client_says_is_judged(authority: str) -> None:
    host = host_of(authority)
    assert not is_allowed_host(authority, NAMES) or host is not None
    assert host is None or host == host.lower()


def test_whose_pages_may_ask_are_names_of_this_server_too() -> None:
    """A page that is let in by its origin is mostly served beside what it asks, by one proxy."""
    assert hosts_of_origins(("https://Game.example", "http://friend.example:8080")) == {
        "game.example",
        "friend.example",
    }
    assert hosts_of_origins(("*",)) == {ANY_HOST}


def test_every_answer_says_that_it_is_what_its_type_says_and_for_no_other_origin() -> None:
    said = dict(guarded([(b"content-type", b"application/json")]))
    assert (said[b"x-content-type-options"], said[b"cross-origin-resource-policy"]) == (b"nosniff", b"same-origin")
    own = guarded([(b"Cross-Origin-Resource-Policy", b"cross-origin")])
    assert [value for name, value in own if name.lower() == b"cross-origin-resource-policy"] == [b"cross-origin"]
