"""Where a command finds the keys that it is about: in files of this machine, or with a server that runs."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from batonpass.actors.base.clock import Clock
from batonpass.authority.names import BadName, check_name
from batonpass.authority.node.config import ConfigError
from batonpass.authority.trust.key_pinning import Pins
from batonpass.crypto.continuity import Published
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import PublicIdentity
from batonpass.crypto.pin_file import PinFile
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.keys_directory import keys_directory
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer

__all__ = ["Files", "Place", "RunningServerKeys", "Shown", "files_options", "operator_options", "place_options"]

PINS_FILE: Final = "pins.jsonl"


@dataclass(frozen=True)
class Shown:
    """Keys, and what is known about them; `is_published` is None when it cannot be told here."""

    name: str
    keys: Published
    is_published: bool | None = None
    conflicts: tuple[tuple[str, str], ...] = ()


class Files:
    """The keys in a directory. Raises KeyFileError when they cannot be used."""

    def __init__(self, directory: Path, name: str) -> None:
        self.store: Final = KeyStore(directory)
        self.name: Final = name

    def show(self) -> Shown:
        """The keys as they are on the disk."""
        ring = self.store.load_ring()
        return Shown(ring.name or self.name, ring.published)

    def rotate(self, overlap_s: float) -> Shown:
        """New keys; the server uses them from its next start on."""
        return self._changed(
            lambda name, now_s: self.store.rotate(name, now_s=now_s, overlap_s=overlap_s).published,
        )

    def revoke(self, kid: str) -> Shown:
        """Revoke a generation; the server knows it from its next start on."""
        return self._changed(lambda name, now_s: self.store.revoke(name, kid, now_s=now_s).published)

    def forget(self, name: str) -> bool:
        """Take back what is pinned of a name. Whether there was anything."""
        return Pins(PinFile(self.store.directory / PINS_FILE)).forget(name)

    def _changed(self, change: Callable[[str, float], Published]) -> Shown:
        name = self.name or self.store.load_ring().name
        if not name:
            raise click.UsageError("say whose keys these are, which goes into what is signed: --name alpha.s1")
        try:
            check_name(name)
        except BadName as error:
            raise click.UsageError(f"--name: {error}") from error
        try:
            return Shown(name, change(name, Clock().unix_s()), False)
        except KeyError as error:
            text = f"{error.args[0]} is neither a current nor a retiring key in {self.store.directory}"
            raise click.ClickException(f"{text}: see `baton keys show`") from error
        except ValueError as error:
            raise click.ClickException(str(error)) from error


class _Directory(click.Path):
    """A directory, of which the empty name is none: a variable of a script that is not set, as a rule."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click.Path. Fails for an empty name."""
        if value == "":
            self.fail("the name is empty; a single dot is the directory that you are in", param, ctx)
        return super().convert(value, param, ctx)


class RunningServerKeys:
    """The keys of a server that runs. Raises as `RemoteServer`."""

    def __init__(self, server: RemoteServer) -> None:
        self.server: Final = server

    def show(self) -> Shown:
        """The keys that it has."""
        return self._read(self.server.call("GET", "/v1/keys"))

    def rotate(self, overlap_s: float) -> Shown:
        """New keys, in force when this returns."""
        return self._read(self.server.call("POST", "/v1/keys/rotate", json={"overlap_s": overlap_s}))

    def revoke(self, kid: str) -> Shown:
        """Revoke a generation, in force when this returns."""
        return self._read(self.server.call("POST", "/v1/keys/revoke", json={"kid": kid}))

    def forget(self, name: str) -> bool:
        """Take back what it has pinned of a name."""
        self.server.call("DELETE", f"/v1/keys/pins/{name}")
        return True

    def show_other(self, name: str) -> Shown:
        """The keys of another server or player, as this server's directory shows them."""
        row = self.server.call("GET", f"/v1/servers/{name}")
        return self._read(row)

    def _read(self, view: Any) -> Shown:
        try:
            published = Published(
                int(view["version"]), PublicIdentity.from_jwks_untrusted(view["keys"]), tuple(view["statements"])
            )
            conflicts = tuple((str(name), str(why)) for name, why in view.get("conflicts", {}).items())
            return Shown(str(view["name"]), published, bool(view.get("published", True)), conflicts)
        except (KeyError, TypeError, ValueError, AttributeError, CryptoError) as error:
            raise EnvironmentFailed(f"{self.server.url} is no server of ours: it answers other keys") from error


Place = Files | RunningServerKeys


def files_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name keys in files; the command gets `place`."""

    def run(config_file: Path | None, directory: Path | None, name: str | None, **flags: Any) -> Any:
        return command(place=_files(config_file, directory, name), **flags)

    return _with(run, command, _FILES)


def operator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a running server; the command gets `place`."""

    def run(url: str | None, token_file: Path | None, timeout_s: float, **flags: Any) -> Any:
        if url is None:
            raise click.UsageError("say which server: --url http://127.0.0.1:17103, or set BATON_URL")
        with RemoteServer(url, token_file, timeout_s) as server:
            return command(place=RunningServerKeys(server), **flags)

    return _with(run, command, _REMOTE)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Either of them; the command gets `place`."""

    def run(
        config_file: Path | None,
        directory: Path | None,
        name: str | None,
        url: str | None,
        token_file: Path | None,
        timeout_s: float,
        **flags: Any,
    ) -> Any:
        if config_file is not None or directory is not None:
            source = click.get_current_context().get_parameter_source("url")
            if url is not None and source is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError("give --url for a server that runs, or --dir or --config for files, not both")
            return command(place=_files(config_file, directory, name), **flags)
        if url is None:
            raise click.UsageError("say whose keys: --url of a server that runs, or --config or --dir of its files")
        with RemoteServer(url, token_file, timeout_s) as server:
            return command(place=RunningServerKeys(server), **flags)

    return _with(run, command, (*_FILES, *_REMOTE))


_FILES: Final = (
    click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Of a server: its keys, by its name.",
    ),
    click.option(
        "--dir",
        "directory",
        type=_Directory(),
        metavar="DIR",
        help="A server's directory, or the keys in it.",
    ),
    click.option("--name", type=QualifiedName(), metavar="INSTANCE.LOCAL", help="With --dir: whose keys they are."),
)
_REMOTE: Final = (
    click.option("--url", envvar="BATON_URL", metavar="URL", help="Of a server that runs."),
    click.option(
        "--token-file",
        envvar="BATON_OPERATOR_TOKEN_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With its operator token.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=FiniteRange(min=0.1, max=600.0),
        default=30.0,
        metavar="SECONDS",
        help="For an answer. [default: 30]",
    ),
)


def _with(
    run: Callable[..., Any], command: Callable[..., Any], options: tuple[Callable[..., Any], ...]
) -> Callable[..., Any]:
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # click's own
    for option in reversed(options):
        run = option(run)
    return run


def _files(config_file: Path | None, directory: Path | None, name: str | None) -> Files:
    if config_file is not None:
        if directory is not None:
            raise click.UsageError("give --config or --dir, not both")
        try:
            config = tomllib.loads(config_file.read_text(encoding="utf-8"))
            configured = check_name(config["name"])
            files = Files(Path(config["directory"]) / "keys", configured)
        except OSError as error:
            raise ConfigError(f"cannot read configuration {config_file}: {error.strerror}") from error
        except BadName as error:
            raise ConfigError(f"{config_file}: {error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise ConfigError(f"{config_file} is no configuration of a server: it names none") from error
        if name not in (None, configured):
            raise click.UsageError(f"{config_file} is of {configured}, not of {name}: leave --name out")
        return files
    if directory is None:
        raise click.UsageError("say where the keys are: --config FILE of a server, or --dir DIR")
    return Files(keys_directory(directory), name or "")
