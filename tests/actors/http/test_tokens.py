"""What lets a request in: a token's role and its scope, and what a server believes at that moment."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import Request

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.callers import ROLES, Caller
from batonpass.actors.http.tokens import ACCESS, Access, TokenGate
from batonpass.crypto.access_tokens import TokenRole
from tests.tokens import NOW_S, claims_of, gate, issuer, token_of, write_issuer


@pytest.fixture(scope="module")
def issuer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_issuer(tmp_path_factory.mktemp("issuer"))


def request(token: str | None, path: str = "/v1/tree/shop/a", raw: bytes = b"") -> Request:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "raw_path": raw or path.encode(), "query_string": b"",
        "headers": headers, "server": ("alpha", 80), "scheme": "http",
    }  # fmt: skip
    return Request(scope)


def code_of(tokens: TokenGate, one: Request, caller: Caller = Caller.VIEWER) -> tuple[int, str]:
    try:
        tokens.let_in(one, caller)
    except ApiError as error:
        assert ACCESS not in one.scope
        return error.status, error.code
    assert isinstance(one.scope[ACCESS], Access)
    return 0, ""


def test_each_role_is_let_in_where_the_table_says_so_and_nowhere_else(issuer_file: Path) -> None:
    for caller in Caller:
        for role in TokenRole:
            found = code_of(gate(issuer_file), request(token_of(role)), caller)
            if role in ROLES.get(caller, frozenset()):
                assert found == (0, "")
            else:
                assert found == (403, "missing_right"), (caller, role)


def test_an_operator_may_what_a_server_may_and_that_what_a_viewer_may() -> None:
    of = {role: {caller for caller, roles in ROLES.items() if role in roles} for role in TokenRole}
    assert of[TokenRole.VIEWER] < of[TokenRole.SERVER] < of[TokenRole.OPERATOR]
    assert of[TokenRole.PLAYER] == {Caller.AT_DOOR, Caller.PLAYER}


def test_who_asks_is_known_to_what_comes_after(issuer_file: Path) -> None:
    one = request(token_of(TokenRole.SERVER, subject="shop"))
    access = gate(issuer_file).let_in(one, Caller.CLIENT)
    assert one.scope[ACCESS] is access
    assert (access.role, access.subject) == (TokenRole.SERVER, "shop")


def test_a_scope_closes_all_other_paths(issuer_file: Path) -> None:
    token = token_of(scope=("/v1/tree/shop/*", "/v1/map"))
    for path, raw, expected in (
        ("/v1/tree/shop/a", b"", ""),
        ("/v1/map", b"", ""),
        ("/v1/map/", b"", "out_of_scope"),
        ("/v1/tree/shop", b"", "out_of_scope"),
        ("/v1/watch", b"", "out_of_scope"),
        # A name that has a slash: it is that of another node.
        ("/v1/tree/shop/a", b"/v1/tree/shop%2Fa", "out_of_scope"),
        ("/v1/tree/shop/a", b"/v1/tree%2fshop/a", "out_of_scope"),
    ):
        assert code_of(gate(issuer_file), request(token, path, raw))[1] == expected, path
        assert code_of(gate(issuer_file), request(token_of(), path, raw))[1] == ""


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, (401, "no_token")),
        ("", (401, "no_token")),
        ("guess", (403, "wrong_token")),
        (token_of(audience="beta"), (403, "wrong_audience")),
        (token_of(expires_s=NOW_S - 100, not_before_s=NOW_S - 200), (401, "token_expired")),
        (token_of(not_before_s=NOW_S + 100), (401, "token_too_early")),
    ],
)
def test_each_refusal_has_its_code(issuer_file: Path, token: str | None, expected: tuple[int, str]) -> None:
    assert code_of(gate(issuer_file), request(token)) == expected


def test_the_two_secrets_are_taken_beside_an_issuer_for_their_roles(issuer_file: Path) -> None:
    both = gate(issuer_file, client="the client", operator="the operator")
    assert code_of(both, request("the client"), Caller.CLIENT) == (0, "")
    assert code_of(both, request("the client"), Caller.OPERATOR) == (403, "missing_right")
    assert code_of(both, request("the operator"), Caller.OPERATOR) == (0, "")
    assert code_of(both, request(token_of(TokenRole.OPERATOR)), Caller.OPERATOR) == (0, "")


def test_a_server_that_believes_nobody_lets_nobody_in() -> None:
    assert code_of(gate(), request(token_of())) == (403, "no_operator")
    assert code_of(gate(client="secret"), request(token_of(TokenRole.SERVER))) == (403, "wrong_token")


def test_what_the_file_says_now_counts_and_without_it_nobody_is_believed(tmp_path: Path) -> None:
    file = write_issuer(tmp_path)
    tokens = gate(file)
    good = request(token_of())
    assert code_of(tokens, good) == (0, "")
    claims = claims_of()
    fresh = tmp_path / "fresh"
    fresh.write_text(issuer().public().without(claims.jti, claims.expires_s, NOW_S).to_json())
    fresh.chmod(0o600)
    fresh.replace(file)
    assert code_of(tokens, request(token_of())) == (401, "token_revoked")
    assert code_of(tokens, request(token_of(jti="0002"))) == (0, "")
    for text in ("", "{}", "no JSON"):
        file.write_text(text)
        assert code_of(tokens, request(token_of(jti="0002"))) == (403, "wrong_token")
    file.unlink()
    assert code_of(tokens, request(token_of(jti="0002"))) == (403, "wrong_token")
    write_issuer(tmp_path)
    assert code_of(tokens, request(token_of())) == (0, "")
    # Others could have written it.
    file.chmod(0o620)
    file.touch()
    assert code_of(tokens, request(token_of())) == (403, "wrong_token")
