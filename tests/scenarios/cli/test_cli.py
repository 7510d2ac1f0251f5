"""The `baton` command: what it teaches, what it refuses, and with which exit status."""

import errno
import logging
import os
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click
import pytest
import trio

from batonpass.actors import Exit, RestartLimitReached
from batonpass.actors.core.restart import RestartWindow
from batonpass.authority.node.config import ConfigError
from batonpass.crypto.errors import KeyFileError
from batonpass.homeserver.config import HomeserverConfig, RelayConfig
from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.cluster.blueprint import ProcessRole, hold_directory, lay_out
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.topology import ClusterSpec, InstanceRoute
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.simserver.server.config import SimserverConfig
from batonpass.tree.disk.disk import DiskFailed
from batonpass.tree.disk.journal import JournalConflict, JournalDamaged, JournalForeign
from batonpass.tree.disk.snapshot import SnapshotDamaged
from batonpass.tree.member.replica import DirectoryInUse
from tests.scenarios.fakes import DEADLINE_S, dice

Baton = Callable[..., tuple[int, str, str]]
AnyConfig = HomeserverConfig | SimserverConfig | RelayConfig


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str]) -> Baton:
    """Runs the command in this process; returns exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.run_command(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a module in the place of one that a command imports when it runs."""

    def install(name: str, **contents: Any) -> None:
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    return install


# ---- what it teaches ----


def test_help_shows_examples_and_exit_statuses(baton: Baton) -> None:
    status, out, _ = baton("--help")

    assert status == 0
    assert "baton up --instances alpha:3 --dir here" in out
    assert "130  interrupted" in out
    assert "143  the same by SIGTERM" in out
    for command in ("up", "run", "homeserver", "simserver", "relay"):
        assert f"\n  {command}" in out


@pytest.mark.parametrize("command", [("up",), ("run",), ("homeserver",), ("simserver",), ("relay",)])
def test_every_command_explains_itself(baton: Baton, command: tuple[str, ...]) -> None:
    status, out, _ = baton(*command, "--help")

    assert status == 0
    assert out.startswith(f"Usage: baton {command[0]} ")


def test_the_version_is_that_of_the_package(baton: Baton) -> None:
    assert baton("--version") == (0, "batonpass 0.1.0\n", "")


async def test_help_imports_nothing_that_makes_it_slow() -> None:
    heavy = ["trio", "httpx", "pydantic", "rich", "fastapi", "cryptography", "jinja2"]
    program = (
        "import sys; from batonpass.scenarios.cli.main import run_command as run;"
        "run(['--help']); run(['run', '--help']);"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    with trio.fail_after(DEADLINE_S):
        done = await trio.run_process((sys.executable, "-c", program), capture_stdout=True, capture_stderr=True)

    assert done.stderr.strip() == b"[]"


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("dance",), "No such command 'dance'"),
        (("run", "dance"), "No such command 'dance'"),
        (("up", "--instances", "alpha"), "cannot read 'alpha'; write name:count, for example alpha:3,beta:3"),
        (("up", "--route", "alpha"), "for example alpha:gamma=r1,r2"),
        (("up", "--route", "alpha:beta=r1"), "there is no relay.r1"),
        (("up", "--world-option", "balls"), "'balls' is not KEY=VALUE"),
        (
            ("up", "--telemetry-handler", "spans"),
            "cannot read telemetry handler 'spans'; write package.module:function",
        ),
        (("up", "--telemetry-handler", "nowhere:f"), "nowhere:f cannot be loaded: ModuleNotFoundError"),
        (("up", *("--telemetry-handler", "a:b") * 17), "telemetry handlers: 17 is not between 0 and 16"),
        (("up", "--simservers", "-1"), "-1 is not between 0 and 99"),
        (("up", "--world", "nowhere:X"), "world 'nowhere:X' cannot be loaded: ModuleNotFoundError: No module"),
        (("up", "--dir", "/proc/nowhere/cluster"), "dir: cannot create the cluster directory /proc/nowhere/cluster"),
        (("server", "balance", "--pause", "--resume", "--url", "http://[::1]:9"), "--pause and --resume exclude each"),
        (("up", "--timeout", "-1"), "Invalid value for '--timeout'"),
        (("homeserver",), "Missing option '--config'"),
        (("homeserver", "--config", "/no/such.toml"), "cannot read configuration /no/such.toml"),
        (("relay", "--config", "x", "--listen", "8080"), "--listen '8080' is not HOST:PORT"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_status_2(
    baton: Baton, arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = baton(*arguments)

    assert (status, out) == (2, "")
    assert err.startswith("baton: ")
    assert err.count("\n") == 1
    assert sentence in err


@pytest.mark.parametrize("arguments", [(), ("server",), ("chaos",)], ids=str)
def test_a_group_without_a_command_shows_what_there_is(baton: Baton, arguments: tuple[str, ...]) -> None:
    status, out, err = baton(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("Usage: baton")
    assert "Commands:" in err


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


WINDOW = RestartWindow(3, 5.0)
GAVE_UP = RestartLimitReached("<Supervisor 'simserver'>", WINDOW, "ticks", ZeroDivisionError("no time"))


@pytest.mark.parametrize(
    ("action", "status", "err"),
    [
        (lambda: None, 0, ""),
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (raising(EnvironmentFailed("the disk is full")), 3, "baton: the disk is full\n"),
        (raising(ConfigError("no such world")), 2, "baton: no such world\n"),
        (raising(KeyFileError("keys are open to others")), 3, "baton: keys are open to others\n"),
        (raising(ExceptionGroup("", [ExceptionGroup("", [ConfigError("deep")])])), 2, "baton: deep\n"),
        (
            raising(OSError(errno.EADDRINUSE, "Address already in use")),
            3,
            "baton: an address that this server should listen on is in use; is it running already?\n",
        ),
        (
            raising(ExceptionGroup("", [OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")])),
            3,
            "baton: this server cannot listen at an address of its configuration (Cannot assign requested address): "
            "give one of this machine\n",
        ),
        (
            raising(socket.gaierror(socket.EAI_NONAME, "Name or service not known")),
            3,
            "baton: this server cannot listen at an address of its configuration (Name or service not known): "
            "give one of this machine\n",
        ),
        (
            raising(Exit("killed", "<the root>")),
            3,
            f"baton: this server cannot go on: {Exit('killed', '<the root>')}\n",
        ),
        (raising(ExceptionGroup("", [GAVE_UP])), 3, f"baton: this server cannot go on: {GAVE_UP}\n"),
        (raising(RestartLimitReached("s", WINDOW, "key", KeyFileError("lost"))), 3, "baton: lost\n"),
        # The empty line is click's, so that the sentence does not stand behind the ^C of the terminal.
        (raising(KeyboardInterrupt()), 130, "\nbaton: interrupted\n"),
    ],
)
def test_the_exit_status_of_a_run_says_how_it_went(
    baton: Baton, stand_in: Callable[..., None], action: Callable[[], object], status: int, err: str
) -> None:
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=action))

    assert baton("run", "cases") == (status, "", err)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("oh"), ExceptionGroup("two", [ConfigError("deep"), ZeroDivisionError("oh")])]
)
def test_an_error_of_our_own_shows_where_and_asks_for_a_report(
    baton: Baton, stand_in: Callable[..., None], error: Exception
) -> None:
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=raising(error)))

    status, _, err = baton("run", "cases")

    assert status == 3
    assert "ZeroDivisionError: oh" in err
    assert err.endswith("baton: this is an error in batonpass itself; please report it with the lines above\n")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("name", [(), ("/srv/alpha.h1",)])
def test_a_disk_that_refuses_is_no_error_of_our_own_whether_the_file_is_known_or_not(
    baton: Baton, stand_in: Callable[..., None], name: tuple[str, ...], number: int
) -> None:
    failed = ExceptionGroup("tasks", [OSError(number, os.strerror(number), *name)])
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=raising(failed)))
    status, out, err = baton("run", "cases")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert os.strerror(number) in err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOTDIR, errno.ELOOP])
def test_a_file_that_cannot_be_used_is_named(baton: Baton, stand_in: Callable[..., None], number: int) -> None:
    error = OSError(number, os.strerror(number), "/srv/alpha.h1")
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=raising(error)))
    status, out, err = baton("run", "cases")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert f"/srv/alpha.h1 failed: {os.strerror(number)}" in err


LOST: Final = (
    DiskFailed(Path("/srv/alpha.h1/raft/journal"), "writing", errno.EIO),
    JournalConflict("somebody else wrote to the journal"),
    JournalDamaged("the journal is damaged at byte 17"),
    JournalForeign("the journal is of another instance"),
    SnapshotDamaged("the snapshot is damaged"),
    DirectoryInUse("another process has the directory"),
)


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("wrap", [None, "group", "restarts"])
def test_what_a_disk_has_lost_is_one_sentence_and_status_3_however_deep_it_was_met(
    baton: Baton, stand_in: Callable[..., None], error: Exception, wrap: str | None
) -> None:
    met: dict[str | None, Exception] = {
        None: error,
        "group": ExceptionGroup("tasks", [ExceptionGroup("more", [error])]),
        "restarts": RestartLimitReached("<Supervisor 'homeserver'>", WINDOW, "log", error),
    }
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=raising(met[wrap])))
    assert baton("run", "cases") == (3, "", f"baton: {error}\n")


def test_who_has_read_enough_is_told_nothing(baton: Baton, stand_in: Callable[..., None]) -> None:
    error = ExceptionGroup("tasks", [ExceptionGroup("more", [BrokenPipeError(errno.EPIPE, "Broken pipe")])])
    stand_in("batonpass.scenarios.cases.cases", command=click.Command("cases", callback=raising(error)))
    assert baton("run", "cases") == (1, "", "")


# ---- what `up` makes of its flags ----


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ClusterSpec]:
    """The clusters that `baton up` would have started."""
    specs: list[ClusterSpec] = []

    def remember(
        spec: ClusterSpec, screen: object, *, timeout_s: float, grace_s: float, plays: bool, opens: bool
    ) -> int:
        assert plays == (spec.pages is not None) >= opens
        specs.append(spec)
        return 0

    monkeypatch.setattr("batonpass.scenarios.cli.up_command.run_until_asked_to_end", remember)
    return specs


def test_up_without_flags_is_two_instances_of_three(baton: Baton, started: list[ClusterSpec]) -> None:
    assert baton("up")[0] == 0
    assert started == [ClusterSpec({"alpha": 3, "beta": 3}, simservers=2)]


def test_every_flag_of_up_reaches_the_cluster(baton: Baton, started: list[ClusterSpec], tmp_path: Path) -> None:
    status, _, _ = baton(
        *("up", "--instances", "a:1,b:2", "--simservers", "3", "--relays", "2", "--route", "a:b=r2"),
        *(
            "--world",
            "batonpass.simserver.world.demo_balls:Balls",
            "--world-option",
            "balls=7",
            "--world-option",
            "mood=calm",
        ),
        *("--dir", str(tmp_path / "x"), "--log-level", "debug"),
        *("--telemetry-handler", "one:f", "--telemetry-handler", "two.three:g"),
    )

    assert status == 0
    assert started == [
        ClusterSpec(
            {"a": 1, "b": 2},
            simservers=3,
            relays=2,
            routes=(InstanceRoute("a", "b", ("relay.r2",)),),
            world="batonpass.simserver.world.demo_balls:Balls",
            world_options={"balls": 7, "mood": "calm"},
            directory=tmp_path / "x",
            log_level="DEBUG",
            telemetry_handlers=("one:f", "two.three:g"),
        )
    ]


def test_what_is_not_given_is_as_at_the_last_start_in_the_directory(
    baton: Baton, started: list[ClusterSpec], tmp_path: Path
) -> None:
    directory = tmp_path / "cluster"
    with hold_directory(directory), PortAllocator(dice(1)) as ports:
        lay_out(
            ClusterSpec({"alpha": 1}, simservers=1, log_level="DEBUG", telemetry_handlers=("a:f",)), directory, ports
        )

    assert baton("up", "--dir", str(directory), "--simservers", "2")[0] == 0
    assert baton("up", "--dir", str(directory), "--simservers", "2", "--telemetry-handler", "")[0] == 0
    nobody = ClusterSpec({"alpha": 1}, simservers=2, log_level="DEBUG", directory=directory)
    assert started == [replace(nobody, telemetry_handlers=("a:f",)), nobody]


def test_what_is_played_in_is_one_instance_with_the_arena(
    baton: Baton, started: list[ClusterSpec], tmp_path: Path
) -> None:
    assert baton("up", "--play")[0] == 0
    (spec,) = started
    assert (dict(spec.instances), spec.simservers) == ({"alpha": 3}, 3)
    assert spec.world_options == {"servers": ["alpha.s1", "alpha.s2", "alpha.s3"]}
    assert spec.pages is not None
    assert {"index.html", "arena.js", "arena.css"} <= {path.name for path in spec.pages.iterdir()}
    directory = tmp_path / "cluster"
    with hold_directory(directory), PortAllocator(dice(1)) as ports:
        servers = lay_out(replace(spec, directory=directory), directory, ports).servers
    configs = {server.role: tomllib.loads(server.config_file.read_text()) for server in servers}
    homes = [server.rest_url for server in servers if server.role is ProcessRole.HOMESERVER]
    assert configs[ProcessRole.HOMESERVER]["pages"] == str(spec.pages)
    assert configs[ProcessRole.SIMSERVER]["player_origins"] == homes
    assert baton("up", "--play", "--no-open", "--dir", str(directory), "--simservers", "2")[0] == 0
    assert started[1] == replace(
        spec, directory=directory, simservers=2, world_options={"servers": ["alpha.s1", "alpha.s2"]}
    )


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--no-open"], "--no-open"),
        (["--play", "--world", "a.b:C"], "leave out --world"),
        (["--play", "--simservers", "0"], "--simservers 0"),
    ],
)
def test_what_cannot_be_played_in_is_refused(baton: Baton, flags: list[str], why: str) -> None:
    status, _, err = baton("up", *flags)
    assert status == 2
    assert why in err


# ---- running one server ----


@contextmanager
def logging_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.mark.parametrize(
    ("role", "module", "name", "kind"),
    [
        ("homeserver", "batonpass.homeserver.server.main", "alpha.h1", HomeserverConfig),
        ("simserver", "batonpass.simserver.server.main", "alpha.s1", SimserverConfig),
        ("relay", "batonpass.homeserver.server.relay", "relay.r1", RelayConfig),
    ],
)
def test_a_server_runs_with_its_file_and_the_flags_over_it(
    baton: Baton,
    stand_in: Callable[..., None],
    tmp_path: Path,
    role: str,
    module: str,
    name: str,
    kind: type[AnyConfig],
) -> None:
    configs: list[AnyConfig] = []

    def serve(config: AnyConfig) -> int:
        configs.append(config)
        logging.getLogger("a.name").info("a message")
        return 5

    stand_in(module, main=serve)
    with hold_directory(tmp_path / "c"), PortAllocator(dice(1)) as ports:
        blueprint = lay_out(ClusterSpec({"alpha": 1}, relays=1), tmp_path / "c", ports)
    file = next(plan.config_file for plan in blueprint.servers if plan.name == name)

    with logging_put_back():
        status, _, err = baton(role, "--config", str(file), "--listen", "[::1]:99", "--set", "log_level=DEBUG")

    (config,) = configs
    assert status == 5
    assert type(config) is kind
    assert (config.name, config.rest.host, config.rest.port, config.log_level) == (name, "::1", 99, "DEBUG")
    assert err.endswith("Z INFO a.name: a message\n")
