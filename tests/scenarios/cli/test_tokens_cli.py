"""`baton tokens`: an issuer, tokens of it, what they say, and one that is not taken any more."""

import json
import stat
from pathlib import Path

import pytest

from batonpass.crypto.access_tokens import MAX_LIFE_S
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.cluster.token_issuer import believed_in, issuer_file_in, issuer_in, renew_tokens

Capture = pytest.CaptureFixture[str]


class Cluster:
    """A directory with an issuer, and `baton tokens` for it."""

    def __init__(self, directory: Path, capsys: Capture) -> None:
        self.directory = directory
        self._capsys = capsys

    def tokens(self, *arguments: str) -> tuple[int, str, str]:
        status = run_command(["tokens", *arguments])
        said = self._capsys.readouterr()
        return status, said.out, said.err

    def here(self, *arguments: str) -> tuple[int, str, str]:
        return self.tokens(*arguments, "--dir", str(self.directory))

    def made(self, *arguments: str) -> str:
        status, out, err = self.here("create", *arguments)
        assert status == 0, err
        return out.strip()


@pytest.fixture
def cluster(tmp_path: Path, capsys: Capture) -> Cluster:
    made = Cluster(tmp_path / "playground", capsys)
    made.directory.mkdir(mode=0o700)
    assert made.here("issuer")[0] == 0
    return made


def test_a_token_is_made_shown_taken_and_revoked(cluster: Cluster) -> None:
    token = cluster.made("--role", "viewer", "--scope", "/v1/tree/shop/*", "--expires", "30m", "--name", "eve")
    status, out, _ = cluster.here("show", token, "--json")
    said = json.loads(out)
    assert status == 0
    assert (said["role"], said["sub"], said["aud"], said["taken"]) == ("viewer", "eve", "alpha", True)
    assert said["exp"] - said["nbf"] == 1800
    assert "GET /v1/tree/{path}" in said["routes"]
    assert not [route for route in said["routes"] if not route.startswith("GET ")]
    file = cluster.directory / "eve.token"
    assert cluster.here("create", "--role", "viewer", "--scope", "/v1/tree/shop/*", "--out", str(file)) == (0, "", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "scope     /v1/tree/shop/*" in cluster.tokens("show", str(file))[1]
    assert cluster.here("revoke", str(file))[0] == 0
    status, out, _ = cluster.here("show", str(file))
    assert status == 1
    assert "(token_revoked)" in out
    assert "it is not taken anyhow" in cluster.here("revoke", str(file))[2]
    other = cluster.made("--role", "server")
    jti = json.loads(cluster.here("show", other, "--json")[1])["jti"]
    assert cluster.here("revoke", jti)[0] == 0
    assert json.loads(cluster.here("show", other, "--json")[1])["code"] == "token_revoked"


def test_with_another_key_no_token_of_the_former_one_is_good(cluster: Cluster) -> None:
    token = cluster.made("--role", "operator", "--simservers")
    assert cluster.here("show", token)[0] == 0
    assert cluster.here("issuer")[0] == 0
    assert cluster.here("show", token)[0] == 0
    assert cluster.here("issuer", "--replace")[0] == 0
    assert "(wrong_token)" in cluster.here("show", token)[1]


def test_files_are_for_their_owner_alone_and_the_key_is_in_one_of_them_only(cluster: Cluster) -> None:
    files = sorted((cluster.directory / "secrets").iterdir())
    assert [file.name for file in files] == ["token-issuer.json", "token-issuer.key"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    key = files[1].read_text().splitlines()[1]
    assert key not in files[0].read_text()
    assert key not in "".join(map(str, cluster.here("issuer")))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--role", "admin"], "is not one of"),
        (["--role", "viewer", "--expires", "8"], "is no time"),
        (["--role", "viewer", "--expires", "0h"], "is no time"),
        (["--role", "viewer", "--expires", f"{MAX_LIFE_S + 1}s"], "is no time"),
        (["--role", "player"], "--player names whose token it is"),
        (["--role", "player", "--player", "ada"], "--player"),
        (["--role", "viewer", "--player", "alpha.ada"], "--player names whose token it is"),
        (["--role", "viewer", "--simservers"], "--simservers goes with --role operator"),
        (["--role", "viewer", "--scope", "tree"], "is no pattern"),
        (["--role", "viewer", "--name", "a b"], "is no name"),
    ],
)
def test_what_cannot_be_said_is_a_mistake(cluster: Cluster, arguments: list[str], why: str) -> None:
    status, out, err = cluster.here("create", *arguments)
    assert (status, out) == (2, "")
    assert why in err


def test_without_an_issuer_it_says_how_to_make_one(tmp_path: Path, capsys: Capture) -> None:
    nowhere = Cluster(tmp_path, capsys)
    status, _, err = nowhere.here("create", "--role", "viewer")
    assert status == 3
    assert f"make one with: baton tokens issuer --dir {tmp_path}" in err
    assert "three parts of base64url" in nowhere.tokens("show", "guess")[2]


def test_tokens_of_a_cluster_are_kept_while_they_are_good_for_a_while_and_made_anew_then(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o700)
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        written.append(path.name)
        path.write_text(text)
        path.chmod(0o600)

    now_s = 1_800_000_000.0
    renew_tokens(tmp_path, ["alpha"], now_s, write)
    three = ["alpha.client-token", "alpha.operator-token", "alpha.simserver-operator-token"]
    assert written == ["token-issuer.key", "token-issuer.json", *three]
    held = (tmp_path / "secrets" / "alpha.client-token").read_text().strip()
    assert believed_in(tmp_path).check_untrusted(held, "alpha", now_s).role == "server"
    written.clear()
    renew_tokens(tmp_path, ["alpha"], now_s + 300 * 86_400, write)
    assert written == []
    renew_tokens(tmp_path, ["alpha", "beta"], now_s + 310 * 86_400, write)
    assert written == [*three, *(name.replace("alpha", "beta") for name in three)]
    # As of a release that had a random text there.
    write(tmp_path / "secrets" / "alpha.client-token", "guess\n")
    written.clear()
    renew_tokens(tmp_path, ["alpha"], now_s + 310 * 86_400, write)
    assert written == three[:1]
    assert issuer_in(tmp_path).name == believed_in(tmp_path).name
    assert issuer_file_in(tmp_path).name == "token-issuer.json"
