"""A shell in which a reader types what pages show, with a `baton` that begins at once (`tests.docs.forked_baton`)."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.forked_baton import asking_program
from tests.docs.pages import ROOT
from tests.scenarios.asked import LIMIT_S, PATIENCE_S

UNTIL_CTRL_C: Final = re.compile(r"baton watch\b|.* --follow\b")
"""Commands that run until Ctrl-C."""
# Of a log there may be nothing to follow; a watch has something to show.
_ENDED: Final = """\
%s > %d.out 2>&1 &
tries=0; until [ -s %d.out ] || [[ $((tries++)) -ge MOST ]]; do sleep 0.1; done
kill $!; wait $!
"""
_FOLLOWED: Final = _ENDED.replace("MOST", "20")
_WATCHED: Final = _ENDED.replace("MOST", str(round(PATIENCE_S * 10)))
_RUN: Final = """\
{ %s
} > %d.out 2>&1 < /dev/null
"""
INTERRUPTED: Final = 130


def without_comment(command: str) -> str:
    """A command without what a page says behind it."""
    return re.sub(r"\s+#[^'\"]*$", "", command)


class Ran(NamedTuple):
    """What came of a command: its exit status, and what it has printed to both streams."""

    status: int
    printed: str


class Shell:
    """Made by `open_shell`; `here` is the folder in which commands begin."""

    def __init__(self, here: Path, environment: dict[str, str]) -> None:
        self.here: Final = here
        self.environment: Final = environment

    def run(self, commands: Sequence[str]) -> list[Ran]:
        """Run these one after the other in one shell, as at its prompt: variables stay, and a failure ends nothing."""
        with tempfile.TemporaryDirectory() as folder:
            script = [f"results={shlex.quote(folder)}"]
            for number, command in enumerate(commands):
                form, typed = _RUN, command
                if UNTIL_CTRL_C.match(command):
                    form, typed = _WATCHED if command.startswith("baton watch") else _FOLLOWED, without_comment(command)
                text = form.replace("%d", f'"$results"/{number}').replace("%s", typed)
                script.append(f'{text}echo $? > "$results"/{number}.status\n')
            subprocess.run(
                ["bash"],
                input="\n".join(script),
                text=True,
                cwd=self.here,
                env=self.environment,
                timeout=LIMIT_S,
                check=True,
            )
            return [self._ran(Path(folder), number) for number in range(len(commands))]

    def said(self, command: str) -> str:
        """What one command prints that finds nothing wrong."""
        (ran,) = self.run([command])
        assert ran.status == 0, f"{command}: {ran.printed}"
        return ran.printed

    @staticmethod
    def _ran(folder: Path, number: int) -> Ran:
        printed = (folder / f"{number}.out").read_text(encoding="utf-8")
        return Ran(int((folder / f"{number}.status").read_text(encoding="utf-8")), printed)

    @contextmanager
    def beside(self, command: str, until: str) -> Iterator[list[str]]:
        """Run a command until the end of the block, and then until it has ended after Ctrl-C.

        Gives the lines that it prints, up to the one that `until` is in.
        """
        argv = ("bash", "-c", f"exec {command}")
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        with subprocess.Popen(argv, cwd=self.here, env=self.environment, text=True, **streams) as process:  # type: ignore[call-overload]
            lines: list[str] = []
            try:
                while until not in "".join(lines[-1:]):
                    lines.append(process.stdout.readline())
                    assert lines[-1], f"{command} ended: {lines}"
                yield lines
            finally:
                process.terminate()
                process.stdout.read()
            assert process.wait(PATIENCE_S) == 0


@contextmanager
def open_shell(here: Path) -> Iterator[Shell]:
    """A shell whose `baton` is forked."""
    # The name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="baton-docs-") as place:
        program, address = Path(place, "baton"), Path(place, "socket")
        program.write_text(asking_program(address), encoding="utf-8")
        program.chmod(0o700)
        # A request that is refused is a command that failed.
        Path(place, ".curlrc").write_text("silent\nfail-with-body\n", encoding="utf-8")
        path = os.pathsep.join((place, str(Path(sys.executable).parent), os.environ["PATH"]))
        argv = (sys.executable, "-m", "tests.docs.forked_baton", str(address))
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as forking:
            assert forking.stdout is not None
            try:
                assert forking.stdout.readline() == "ready\n"
                yield Shell(here, os.environ | {"PATH": path, "BROWSER": "true", "CURL_HOME": place})
            finally:
                forking.terminate()
