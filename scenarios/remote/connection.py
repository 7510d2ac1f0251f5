"""Which server a command talks to, with which token, and what its errors are on the command line."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
from rich.console import Console
from rich.table import Table

from batonpass.actors.http.client import BlockingClient, HttpAnswer, HttpFailed, Streamed
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.common.options import FiniteRange
from batonpass.tree.data.errors import BadPath
from batonpass.tree.data.path import parse_path

__all__ = [
    "RemoteServer",
    "as_json",
    "need_url",
    "path_url",
    "print_table",
    "remote_options",
    "show",
    "show_went_back",
    "stream_lines",
    "table",
]

_MIN_WIDTH: Final = 100
# Of an answer that is read whole: the largest that a server gives are pages of the tree, and dumps of its actors.
_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_MAX_TOKEN_FILE_BYTES: Final = 4096
_SERVER_ERROR: Final = 500


class RemoteServer:
    """One server, spoken to by a command.

    Raises from every call:
        RemoteRefused: it refuses, for a reason that lies with the request or the tree.
        EnvironmentFailed: it cannot be reached, or cannot answer now.
    """

    def __init__(self, url: str, token_file: Path | None, timeout_s: float) -> None:
        """Raises click.UsageError if `url` is none, or no token can be read from the file."""
        need_url("--url", url)
        headers = {} if token_file is None else {"authorization": f"Bearer {_token(token_file)}"}
        self.url = url
        self.timeout_s = timeout_s
        self._http = BlockingClient(url, headers, timeout_s=timeout_s, max_bytes=_MAX_ANSWER_BYTES)

    def __enter__(self) -> "RemoteServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, method: str, path: str, **more: Any) -> Any:
        """One request; the JSON of its answer."""
        with self._reaching():
            answer = self._http.request(method, path, **more)
            self._check(answer)
            try:
                return json.loads(answer.body)
            except ValueError as error:
                raise EnvironmentFailed(f"{self.url} is no server of ours: its answer is no JSON") from error

    @contextmanager
    def stream(self, path: str, *, min_patience_s: float = 0.0, **more: Any) -> Iterator[Streamed]:
        """One request whose answer is read as it comes; silence is waited out for `min_patience_s` at least."""
        with self._reaching(), self._http.stream(path, min_patience_s=min_patience_s, **more) as answer:
            if isinstance(answer, HttpAnswer):
                self._check(answer)
                raise EnvironmentFailed(f"{self.url} is no server of ours: it answers {answer.status}")
            yield answer

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except HttpFailed as error:
            raise EnvironmentFailed(f"{self.url} does not answer: {error}") from error

    def _check(self, answer: HttpAnswer) -> None:
        """Raise what an error says."""
        if answer.is_success:
            return
        try:
            error = json.loads(answer.body)
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise EnvironmentFailed(f"{self.url} is no server of ours: it answers {answer.status}") from None
        if answer.status >= _SERVER_ERROR:
            raise EnvironmentFailed(f"{message} ({code})")
        if code == "no_token":
            message += "; here with --token-file"
        raise RemoteRefused(code, message)


def need_url(what: str, given: str) -> str:
    """What was given as a URL of a server; a usage error, which names it as `what`, if it is none."""
    try:
        url = urlsplit(given)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return given
    except ValueError:
        pass  # brackets that are no address, a port that is no number
    raise click.UsageError(f"{what} {given!r:.200} is no URL: give one like http://127.0.0.1:17105")


def _token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            token = opened.read(_MAX_TOKEN_FILE_BYTES).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"cannot read the token in {file}: {reason}") from error
    if not re.fullmatch(r"[!-~]+", token):
        raise click.UsageError(f"there is no token in {file}: one is a line of ASCII without blanks")
    return token


def _nothing_known(_flags: dict[str, Any], _timeout_s: float) -> None:
    return None


def remote_options(
    token: str, variable: str, *, known: Callable[[dict[str, Any], float], tuple[str, Path] | None] = _nothing_known
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that say where a homeserver is and how to be let in; the command gets a `RemoteServer` as
    `server`.

    `known` says from the other options of the command and the timeout which homeserver it is, and where its token is,
    if they tell. It stands in for an option that is not given.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(url: str | None, token_file: Path | None, timeout_s: float, **flags: Any) -> Any:
            if url is None:
                found = known(flags, timeout_s)
                if found is None:
                    raise click.UsageError("Missing option '--url'.")
                url, token_file = found[0], token_file or found[1]
            with RemoteServer(url, token_file, timeout_s) as server:
                return command(server=server, **flags)

        run.__doc__, run.__name__ = command.__doc__, command.__name__
        run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # click's own
        options = (
            click.option(
                "--url",
                envvar="BATON_URL",
                show_envvar=True,
                metavar="URL",
                help="Of a homeserver's REST.",
            ),
            click.option(
                "--token-file",
                envvar=variable,
                show_envvar=True,
                type=click.Path(dir_okay=False, path_type=Path),
                help=f"With {token}.",
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
        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def stream_lines(answer: Streamed) -> Iterator[str]:
    """The lines of an answer as they come. They end with a line feed, and not, as httpx has it, with U+2028 too."""
    rest = b""
    for piece in answer.pieces():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode()
    if rest:
        yield rest.decode()


def path_url(path: str) -> str:
    """The route of a node, from its written path; a usage error if it has none."""
    try:
        names = parse_path(path)
    except BadPath as error:
        raise click.UsageError(error.message) from error
    # A client library takes names of dots for steps, unless they are encoded too.
    return "/".join(["/v1/tree", *(quote(name, safe="").replace(".", "%2E") for name in names)])


def as_json(text: str, what: str) -> Any:
    """The value of JSON on the command line; a usage error if it is none."""
    try:
        value = read_json_untrusted(text)
        # What can be read but not sent: half a surrogate pair, a number that has become infinite.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return value
    except ValueError as error:
        raise click.UsageError(f"{what} {text!r:.60} is not JSON ({error}); text needs quotes: '\"text\"'") from error


def show_went_back(why: str) -> None:
    """Say that the log of an instance is older than it was, and what to do, if it is so. `why` is empty if it is
    not.
    """
    if why:
        click.echo(f"log_went_back: no leases are granted and nothing is written: {why}")
        click.echo(
            "what to do: put the newer log back, or if it is gone for good: baton cluster accept-loss "
            '(docs/reference/operations.md, "Restoring homeservers")'
        )


def show(value: Any) -> None:
    """Print a value as JSON, for people and programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(title: str, *columns: str) -> Table:
    """A table in the style of all of these commands."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_table(made: Table) -> None:
    """Print it, not folded into less than a readable width when it goes into a file."""
    console = Console(highlight=False)
    console.width = max(console.width, _MIN_WIDTH)
    console.print(made)
