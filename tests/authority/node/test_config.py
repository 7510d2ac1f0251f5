"""Configuration: one TOML file, single fields overridden, and errors that name file, field and remedy."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from batonpass.authority.node.config import (
    Address,
    ConfigError,
    InstanceName,
    RotationPeriod,
    ServedSettings,
    ServerName,
    Settings,
    read_secret,
    require_different,
)
from batonpass.simserver.server.config import SimserverConfig


class ExampleSettings(Settings):
    name: ServerName
    instance: InstanceName
    rest: Address = Address()
    tick_hz: float = 20.0


class Neighbour(BaseModel):
    rest: Address = Address()
    hops: int = 1
    is_near: bool = False


class NeighbourSettings(Settings):
    neighbours: tuple[Neighbour, ...] = ()
    retries_s: list[float] = Field(default_factory=list)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text('name = "alpha.s1"\ninstance = "alpha"\n[rest]\nport = 8001\n', encoding="utf-8")
    return path


def test_a_file_is_read(file: Path) -> None:
    settings = ExampleSettings.load(file)
    assert (settings.name, settings.instance, settings.rest.port) == ("alpha.s1", "alpha", 8001)
    assert settings.rest.url == "http://127.0.0.1:8001"


def test_flags_override_single_fields_and_what_is_not_given_stays(file: Path) -> None:
    settings = ExampleSettings.load(file, {"rest.port": 9, "name": "alpha.s2", "tick_hz": None})
    assert (settings.rest.port, settings.name, settings.tick_hz) == (9, "alpha.s2", 20.0)


def test_a_flag_makes_the_table_that_the_file_has_not(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text('name = "alpha.s1"\ninstance = "alpha"\n', encoding="utf-8")
    assert ExampleSettings.load(path, {"rest.host": "127.0.0.2"}).rest.host == "127.0.0.2"


def test_a_flag_cannot_turn_a_value_into_a_table(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"name\.first: name is not a table"):
        ExampleSettings.load(file, {"name.first": "x"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        ExampleSettings.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe"])
def test_what_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML"):
        ExampleSettings.load(path)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"rest.port": 65536}, "rest.port"),
        ({"rest.colour": "red"}, "rest.colour"),
        ({"name": "s1"}, "name"),
        ({"instance": "Alpha"}, "instance"),
        ({"extra": 1}, "extra"),
        # Python would take them for 1 and 0.
        ({"tick_hz": True}, "tick_hz"),
        ({"rest.port": False}, "rest.port"),
    ],
)
def test_an_error_names_the_file_and_the_field(file: Path, overrides: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ExampleSettings.load(file, overrides)
    assert str(caught.value).startswith(f"{file}: {field}: ")


def test_an_error_about_the_whole_file_says_so(file: Path) -> None:
    class Never(ExampleSettings):
        @classmethod
        def model_validate(cls, *_args: object, **_kwargs: object) -> "Never":
            return super().model_validate("not a table")

    with pytest.raises(ConfigError, match=r"server\.toml: the file: "):
        Never.load(file)


# --- secrets ----------------------------------------------------------------------------------------------------------


def secret(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_secret_is_read_without_the_newline_of_the_editor(tmp_path: Path) -> None:
    assert read_secret(secret(tmp_path / "token", b"0123456789abcdef\n")) == b"0123456789abcdef"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644])
def test_a_secret_that_others_may_touch_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "token", b"0123456789abcdef", mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        read_secret(path)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 15, b"x" * 1025])
def test_a_secret_of_an_unlikely_length_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match="expected 16 to 1024"):
        read_secret(secret(tmp_path / "token", content))


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read secret file .*token: No such file"):
        read_secret(tmp_path / "token")


def test_a_directory_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"secret file .* is no file"):
        read_secret(tmp_path)


def test_a_secret_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = secret(tmp_path / "token", b"")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="more than 4096 bytes"):
        read_secret(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is no file"):
        read_secret(tmp_path / "pipe")


def test_a_secret_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = secret(tmp_path / "token", b"0123456789abcdef")
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match=r"belongs to user \d+"):
        read_secret(path)


def test_one_secret_in_two_places_is_refused_and_both_are_named() -> None:
    different = {"join_token_file": b"j" * 16, "client_token_file": b"c" * 16, "operator_token_file": None}
    require_different(different)
    require_different(different | {"raft_secret_file": None})
    with pytest.raises(ConfigError, match="operator_token_file and client_token_file hold the same secret"):
        require_different(different | {"operator_token_file": b"c" * 16})


@pytest.mark.parametrize(("value_s", "is_taken"), [(0, 1), (3600, 1), (3e6, 1), (60, 0), (-1, 0)])
def test_keys_are_rotated_every_hour_at_most_or_never(value_s: float, is_taken: int) -> None:
    reader = TypeAdapter(RotationPeriod)
    if is_taken:
        assert reader.validate_python(value_s) == value_s
    else:
        with pytest.raises(ValidationError, match="or never"):
            reader.validate_python(value_s)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[[neighbours]]\nhops = 2\n[[neighbours]]\nhops = true", "neighbours.1.hops"),
        ("[[neighbours]]\n[neighbours.rest]\nport = true", "neighbours.0.rest.port"),
        ("retries_s = [1.0, false]", "retries_s.1"),
    ],
)
def test_true_and_false_are_no_numbers_in_a_list_either(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "lists.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf": {re.escape(field)}: Input should be a number, not true or false"):
        NeighbourSettings.load(path)


def test_true_and_false_are_taken_in_a_list_where_they_belong(tmp_path: Path) -> None:
    path = tmp_path / "lists.toml"
    path.write_text("[[neighbours]]\nis_near = true", encoding="utf-8")
    assert NeighbourSettings.load(path).neighbours == (Neighbour(is_near=True),)


class RenamedSettings(ExampleSettings):
    FORMER: ClassVar[Mapping[str, str]] = {"hertz": "tick_hz"}


def test_a_field_is_read_by_its_former_name_which_is_said(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text("hertz = 5\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    assert RenamedSettings.load(file).tick_hz == 5
    (said,) = caplog.messages
    assert said.endswith("hertz is called tick_hz now, and the next release does not read the former name")
    with pytest.raises(ConfigError, match="hertz"):
        ExampleSettings.load(file)


def test_a_flag_overrides_what_stands_there_by_the_former_name(file: Path) -> None:
    file.write_text("hertz = 5\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    assert RenamedSettings.load(file, {"tick_hz": 6}).tick_hz == 6


def test_a_field_is_not_given_by_both_names(file: Path) -> None:
    file.write_text("hertz = 5\ntick_hz = 6\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match="hertz is the former name of tick_hz: give tick_hz alone"):
        RenamedSettings.load(file)


def test_what_is_true_by_the_former_name_is_no_number(file: Path) -> None:
    file.write_text("hertz = true\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match="tick_hz: Input should be a number"):
        RenamedSettings.load(file)


def test_backup_replicas_of_a_simulation_server_are_read_as_copies_for_one_release(tmp_path: Path) -> None:
    path = tmp_path / "alpha.s1.toml"
    lines = (
        'name = "alpha.s1"', 'instance = "alpha"', 'directory = "s1"', 'home_urls = ["http://127.0.0.1:1"]',
        'join_token_file = "token"',
    )  # fmt: skip
    for given in ("copies = 3", "backup_replicas = 3"):
        path.write_text("\n".join((*lines, given)), encoding="utf-8")
        assert SimserverConfig.load(path).backup_replicas == 3


# ---- TLS ----

PROOF = {"certificate": "a.pem", "key": "a.key"}


class DoorSettings(ServedSettings):
    link: Address = Address()
    player_door: Address | None = None


def door_at(fields: Mapping[str, object]) -> DoorSettings:
    return DoorSettings.model_validate({"name": "alpha.s1", **fields})


@pytest.mark.parametrize("field", ["rest", "player_door"])
@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "2001:db8::1", "game.example"])
def test_beyond_loopback_there_is_tls_or_somebody_says_that_there_is_none(field: str, host: str) -> None:
    with pytest.raises(ValidationError, match=r"give tls\.certificate and tls\.key, or say plain_http = true"):
        door_at({field: {"host": host}})
    door_at({field: {"host": host}, "tls": PROOF})
    door_at({field: {"host": host}, "plain_http": True})


def test_on_loopback_and_for_the_link_nothing_is_asked() -> None:
    """The link is encrypted by keys of its own."""
    served = door_at({"rest": {"host": "::1", "port": 7}, "link": {"host": "10.0.0.1"}})
    assert served.rest_url == "http://[::1]:7"
    assert door_at({"rest": {"port": 7}, "tls": PROOF}).rest_url == "https://127.0.0.1:7"
