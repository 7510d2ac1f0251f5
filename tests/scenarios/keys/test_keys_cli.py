"""`baton keys`, on files and against a real homeserver and simulation server in processes of their own."""

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import PublicIdentity
from batonpass.scenarios.keys.places import Files
from tests.scenarios.commands import Baton, baton_command, parsed
from tests.scenarios.two_servers import TwoServers, two_servers


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Baton:
    for name in ("BATON_URL", "BATON_OPERATOR_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return baton_command(capsys, "keys")


# Files


@pytest.fixture
def keys(tmp_path: Path, baton: Baton) -> Path:
    parsed(baton("new", "--dir", tmp_path / "keys", "--json"))
    return tmp_path / "keys"


def test_keys_are_made_once_and_shown(keys: Path, baton: Baton, tmp_path: Path) -> None:
    view = parsed(baton("show", "--dir", tmp_path, "--json"))
    public = KeyStore(keys).load_ring().identity.public
    assert view["current"] == {"signing_kid": public.signing_kid, "agreement_kid": public.agreement_kid}
    assert (view["version"], view["retiring"], view["revoked"], view["published"]) == (1, [], [], None)
    assert public.signing_kid in baton("show", "--dir", keys)[1]
    status, out, err = baton("new", "--dir", keys)
    assert (status, out) == (1, "")
    assert "holds keys already" in err
    assert KeyStore(keys).load_ring().identity.public == public


def test_keys_in_files_are_rotated_and_revoked(keys: Path, baton: Baton) -> None:
    first = parsed(baton("show", "--dir", keys, "--json"))["current"]
    where = ("--dir", keys, "--name", "alpha.s1")
    second = parsed(baton("rotate", *where, "--overlap", "3600", "--json"))
    assert (second["version"], second["published"]) == (2, False)
    assert second["retiring"][0]["signing_kid"] == first["signing_kid"]
    third = parsed(baton("revoke", first["agreement_kid"], "--yes", *where, "--json"))
    assert {entry["kid"] for entry in third["revoked"]} == set(first.values())
    assert third["current"] == second["current"]
    status, out, _ = baton("rotate", *where)
    assert status == 0
    assert "from its next start" in out
    assert out.count("retiring") == 2
    assert "revoked" in out


def test_what_is_not_pinned_any_longer_is_said_for_programs_too(
    keys: Path, baton: Baton, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = {"beta.h1", "beta.h2"}

    def forget(files: Files, name: str) -> bool:
        pinned.remove(name)
        return True

    monkeypatch.setattr(Files, "forget", forget)
    where = ("--yes", "--dir", keys)
    assert parsed(baton("forget", "beta.h1", *where, "--json")) == {"name": "beta.h1", "pinned": False}
    assert baton("forget", "beta.h2", *where) == (0, "the keys of beta.h2 are not pinned any longer\n", "")
    assert not pinned


@pytest.mark.parametrize("kid", ["-h" + 41 * "A", "-6" + 41 * "_", "--" + 41 * "-"])
def test_a_key_id_that_begins_with_a_dash_is_no_option(kid: str, keys: Path, baton: Baton) -> None:
    options = ("--yes", "--dir", keys, "--name", "alpha.s1")
    for arguments in ((kid, *options), (*options, "--", kid)):
        status, out, err = baton("revoke", *arguments)
        assert (status, out) == (1, "")
        assert kid in err


def test_keys_are_exported_for_other_programs(keys: Path, baton: Baton, tmp_path: Path) -> None:
    identity = KeyStore(keys).load_ring().identity
    assert PublicIdentity.from_jwks_untrusted(parsed(baton("export", "--dir", keys))) == identity.public
    assert len(parsed(baton("export", "--dir", keys, "--use", "signing"))["keys"]) == 1
    assert len(baton("export", "--dir", keys, "--format", "raw")[1].split()) == 2
    assert len(baton("export", "--dir", keys, "--format", "compressed", "--use", "signing")[1].strip()) == 66
    backup = tmp_path / "backup.pem"
    private = ("export", "--dir", keys, "--private", "--yes-private", "--use", "signing")
    assert baton(*private, "--format", "pem", "--out", backup) == (0, "", "")
    assert backup.stat().st_mode & 0o777 == 0o600
    assert backup.read_bytes() == (keys / "signing.pem").read_bytes()
    done = subprocess.run(["openssl", "pkey", "-in", backup, "-noout"], check=True, capture_output=True, timeout=20)
    assert done.returncode == 0
    assert "d" in parsed(baton(*private))["keys"][0]
    assert len(baton(*private, "--format", "raw")[1].strip()) == 64
    status, _, err = baton(*private, "--out", backup)
    assert (status, err) == (1, f"baton: {backup} is there already: name another file\n")


def test_private_keys_are_shown_only_when_it_is_said_twice(keys: Path, baton: Baton) -> None:
    secret = (keys / "signing.pem").read_text().splitlines()[1]
    for command in (("show",), ("show", "--json"), ("export",), ("export", "--format", "pem"), ("export", "--private")):
        _, out, err = baton(*command, "--dir", keys)
        assert secret not in out + err
        assert "PRIVATE" not in out
    status, _, err = baton("export", "--private", "--dir", keys)
    assert status == 2
    assert "--yes-private" in err


def test_what_is_wrong_is_said_in_one_line_with_what_to_do(
    keys: Path, baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no.toml").write_text("a = 1")
    (tmp_path / "no.jwks").write_text("[]")
    (tmp_path / "zero.toml").write_text('name = "alpha.s1"\ndirectory = "a\\u0000b"')
    for arguments, expected, sentence in (
        (("show",), 2, "say whose keys: --url"),
        (("new",), 2, "say where the keys are"),
        (("show", "--dir", tmp_path / "none"), 3, "baton keys new"),
        (("show", "--dir", ""), 2, "the name is empty"),
        (("show", "--dir", "x" * 300), 3, "cannot be looked for: File name too long"),
        (("new", "--dir", "x" * 300), 3, "cannot be looked for: File name too long"),
        (("new", "--dir", "/proc/x"), 3, "/proc/x/keys cannot be made"),
        (("new", "--config", tmp_path / "zero.toml"), 3, "cannot be made: embedded null byte"),
        (("show", "--config", tmp_path / "none.toml"), 2, "cannot read configuration"),
        (("show", "--config", tmp_path / "no.toml"), 2, "no configuration of a server"),
        (("show", "--config", tmp_path / "no.toml", "--dir", keys), 2, "not both"),
        (("show", "--dir", keys, "--url", "http://127.0.0.1:1"), 2, "not both"),
        (("show", "alpha.s1", "--dir", keys), 2, "give its --url"),
        (("show", "--url", "http://127.0.0.1:1"), 3, "does not answer"),
        (("rotate", "--dir", keys), 2, "--name alpha.s1"),
        (("rotate", "--dir", keys, "--name", "alpha.s1", "--overlap", "nan"), 2, "nan"),
        (("revoke", "abc", "--dir", keys), 2, "cannot be undone"),
        (("revoke", "abc", "--dir", keys, "--name", "a.b", "--yes"), 1, "neither a current nor a retiring key"),
        (("export", "--dir", keys, "--private", "--yes-private", "--format", "compressed"), 2, "no compressed form"),
        (("export", "--url", "http://127.0.0.1:1", "--private", "--yes-private"), 2, "never leave"),
        (("reset", "alpha.s1", "--keys", tmp_path / "no.jwks", "--reason", "x"), 2, "say which server"),
        (("reset", "a.b", "--keys", tmp_path / "no.jwks", "--reason", "x", "--url", "http://x"), 2, "no public keys"),
        (("forget", "alpha.s1", "--dir", keys), 2, "say --yes"),
        (("forget", "alpha.s1", "--dir", keys, "--yes"), 1, "no keys of alpha.s1 are pinned"),
    ):
        status, _, err = baton(*arguments)
        assert (status, err.count("\n")) == (expected, 1), (arguments, err)
        assert sentence in err
    (keys / "signing.pem").chmod(0o644)
    monkeypatch.setenv("BATON_URL", "http://127.0.0.1:1")
    status, _, err = baton("show", "--dir", keys)
    assert (status, "chmod 600" in err, err.count("\n")) == (3, True, 1)


# Servers that run


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    with two_servers(tmp_path_factory.mktemp("keys")) as running:
        yield running


def test_running_servers_rotate_and_revoke_and_the_directory_shows_it(running: TwoServers, baton: Baton) -> None:
    for url, name, token in (
        (running.home_url, "alpha.h1", "operator"),
        (running.sim_url, "alpha.s1", "simserver-operator"),
    ):
        where = ("--url", url, "--token-file", running.directory / token)
        first = parsed(baton("show", "--url", url, "--json"))
        assert (first["name"], first["version"], first["published"]) == (name, 1, True)
        second = parsed(baton("rotate", *where, "--json"))
        assert (second["version"], second["published"]) == (2, True)
        third = parsed(baton("revoke", first["current"]["signing_kid"], "--yes", *where, "--json"))
        looked_up = parsed(baton("show", name, "--url", running.home_url, "--json"))
        assert looked_up["current"] == third["current"]
        assert [entry["kid"] for entry in looked_up["revoked"]] == [entry["kid"] for entry in third["revoked"]]
        assert "in the directory" in baton("show", "--url", url)[1]
        assert PublicIdentity.from_jwks_untrusted(parsed(baton("export", "--url", url))).revoked
    status, _, err = baton("rotate", "--url", running.home_url)
    assert (status, err.endswith("(no_token)\n")) == (1, True)
    where = ("--url", running.home_url, "--token-file", running.directory / "operator")
    status, _, err = baton("revoke", "k" * 43, "--yes", *where)
    assert (status, err.endswith("(unknown_key)\n")) == (1, True)


def test_lost_keys_are_reset_and_everybody_sees_why(running: TwoServers, baton: Baton, tmp_path: Path) -> None:
    at_home = ("--url", running.home_url, "--token-file", running.directory / "operator")
    parsed(baton("new", "--dir", tmp_path / "keys", "--json"))
    baton("export", "--dir", tmp_path / "keys", "--out", tmp_path / "new.jwks")
    reset = ("reset", "alpha.s1", "--keys", tmp_path / "new.jwks", "--reason", "its disk is lost", *at_home)
    version = parsed(baton("show", "alpha.s1", "--url", running.home_url, "--json"))["version"] + 1
    status, out, err = baton(*reset)
    assert (status, err) == (0, "")
    assert f"alpha.s1 has version {version} of its keys" in out
    shown = parsed(baton("show", "alpha.s1", "--url", running.home_url, "--json"))
    assert shown["resets"] == [{"by": "alpha.h1", "version": version, "reason": "its disk is lost"}]
    assert (
        f"version {version} was set by alpha.h1: its disk is lost"
        in baton("show", "alpha.s1", "--url", running.home_url)[1]
    )
    status, _, err = baton("forget", "alpha.s9", "--yes", *at_home)
    assert (status, err.endswith("(not_pinned)\n")) == (1, True)


# What is not as it should be


@pytest.mark.parametrize(
    "name", ["nonsense", "alpha.", ".s1", "alpha.s1/..", "Alpha.s1", "alpha.s1.x", "alpha. s1", ""]
)
def test_no_keys_are_made_for_a_name_that_nobody_can_have(name: str, baton: Baton, tmp_path: Path) -> None:
    config = tmp_path / "s1.toml"
    config.write_text(f'name = "{name}"\ndirectory = "{tmp_path}"')
    for where in (("--dir", tmp_path, "--name", name), ("--config", config)):
        status, out, err = baton("new", *where)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert not (tmp_path / "keys").exists()


def test_nobody_changes_keys_in_another_servers_name(keys: Path, baton: Baton) -> None:
    KeyStore(keys).claim("alpha.s1")
    before = KeyStore(keys).load_ring()
    for command in (("rotate",), ("revoke", before.identity.public.signing_kid, "--yes")):
        status, _, err = baton(*command, "--dir", keys, "--name", "alpha.s2")
        assert status != 0
        assert "holds the keys of alpha.s1, not of alpha.s2" in err
    status, _, err = baton("rotate", "--dir", keys, "--name", "nonsense")
    assert status == 2
    assert KeyStore(keys).load_ring().version == 1
    # Once a server has used them, or changed them, they say whose they are.
    assert parsed(baton("rotate", "--dir", keys, "--json"))["name"] == "alpha.s1"
    assert KeyStore(keys).load_ring().name == "alpha.s1"
    with pytest.raises(KeyFileError, match="not of alpha"):
        KeyStore(keys).claim("alpha.s2")


def test_a_configuration_says_whose_its_keys_are(baton: Baton, tmp_path: Path) -> None:
    config = tmp_path / "s1.toml"
    config.write_text(f'name = "alpha.s1"\ndirectory = "{tmp_path}"')
    parsed(baton("new", "--config", config, "--json"))
    for command in ("rotate", "show", "new"):
        status, out, err = baton(command, "--config", config, "--name", "other.x")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "is of alpha.s1, not of other.x" in err
    ring = KeyStore(tmp_path / "keys").load_ring()
    assert (ring.name, ring.version) == ("", 1)
    assert parsed(baton("rotate", "--config", config, "--name", "alpha.s1", "--json"))["name"] == "alpha.s1"
    # Whoever shows them sees whose they are, whatever he takes them for.
    assert parsed(baton("show", "--dir", tmp_path, "--name", "other.x", "--json"))["name"] == "alpha.s1"


def test_without_hard_links_no_keys_are_made_and_that_is_said(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", refuse)
    status, _, err = baton("new", "--dir", tmp_path)
    assert (status, err.count("\n")) == (3, 1)
    assert "Operation not permitted; the file system of this directory must have hard links" in err
    assert not any((tmp_path / "keys").iterdir())


def test_a_ring_that_others_would_not_believe_is_said_to_be_damaged(keys: Path, baton: Baton) -> None:
    parsed(baton("rotate", "--dir", keys, "--name", "alpha.s1", "--json"))
    ring = keys / "ring.json"
    good = json.loads(ring.read_text())
    retiring_for_ever = [good["generations"][0], {**good["generations"][1], "exp": float("inf")}]
    changes: list[dict[str, Any]] = [
        {"statements": ["x"]},
        {"statements": []},
        {"version": 7},
        {"version": None},
        {"version": float("inf")},
        {"generations": retiring_for_ever},
        {"revoked": {"k": float("-inf")}},
    ]
    for change in changes:
        ring.write_text(json.dumps(good | change))
        status, _, err = baton("show", "--dir", keys)
        assert status != 0
        assert "is damaged" in err
        assert "Traceback" not in err


def test_new_keys_are_made_where_their_server_looks_for_them(tmp_path: Path, baton: Baton) -> None:
    server = tmp_path / "alpha.s1"
    made = parsed(baton("new", "--dir", server, "--json"))["current"]
    assert KeyStore(server / "keys").load_ring().identity.public.signing_kid == made["signing_kid"]
    assert parsed(baton("show", "--dir", server, "--json"))["current"] == made
    server.chmod(0o700)
    KeyStore(server).load_or_create()
    status, _, err = baton("show", "--dir", server)
    assert status == 2
    assert "of which one is used" in err
