"""The process that fuzzes: it imports everything once, and each target gets a copy of it (a fork).

Started by `tests.fuzz.run`. For each line on stdin, `SECONDS NAME DIRECTORY`, it fuzzes a target from the inputs in
DIRECTORY/corpus, leaves there what it finds and in DIRECTORY/log what it said, and answers with the exit status.

Only the modules that those inputs enter are instrumented: that takes 0.2 s for a target, and 10 s for all modules, most
of which no target ever enters.
"""

import logging
import os
import random
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tests.fuzz import plain
from tests.fuzz.table import TARGETS
from tests.fuzz.target import MAX_INPUT_BYTES, Target, run

PACKAGES = (
    "batonpass.actors",
    "batonpass.authority",
    "batonpass.crypto",
    "batonpass.homeserver",
    "batonpass.scenarios.sectors.map",
    "batonpass.scenarios.sectors.position",
    "batonpass.simserver",
    "batonpass.tree",
)
"""What may be instrumented, and what counts as reached."""


def main() -> None:
    """Until stdin ends."""
    import atheris

    logging.disable(logging.CRITICAL)  # what is dropped may be logged, once per input
    _answer("ready" if hasattr(atheris, "Fuzz") else "not atheris")
    for line in sys.stdin:
        seconds, name, directory = line.rstrip("\n").split(" ", 2)
        child = os.fork()
        if not child:
            _be_fuzzed(TARGETS[name], Path(directory), int(seconds))
        _, status = os.waitpid(child, 0)
        _answer(str(os.waitstatus_to_exitcode(status)))


def modules_entered(target: Target, inputs: Iterable[bytes]) -> set[str]:
    """Those of PACKAGES in which any function runs when the target gets these inputs."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.add(frame.f_globals.get("__name__", ""))

    for data in inputs:
        sys.setprofile(note)
        try:
            with suppress(Exception):  # libFuzzer begins with the same inputs, and reports what they raise
                run(target, data)
        finally:
            sys.setprofile(None)
    return {name for name in names if f"{name}.".startswith(tuple(f"{package}." for package in PACKAGES))}


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _be_fuzzed(target: Target, directory: Path, seconds: int) -> None:
    """Never returns: libFuzzer ends the process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT, 0o600)
    for descriptor, of in ((0, nothing), (1, log), (2, log)):
        os.dup2(of, descriptor)
    try:
        _fuzz(target, directory, seconds)
    finally:
        sys.stderr.flush()
        os._exit(1)


def _fuzz(target: Target, directory: Path, seconds: int) -> None:
    import atheris

    inputs = [path.read_bytes() for path in sorted((directory / "corpus").iterdir())]
    for name in sorted(modules_entered(target, inputs)):
        for value in list(vars(sys.modules[name]).values()):
            _instrument(atheris, value, name)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if target.plain and rng.random() < 0.6:
            mutated = plain.mutate(data, target.plain, rng, max_size)
            if mutated is not None:
                return mutated
        return bytes(atheris.Mutate(data, max_size))

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES if not target.plain else 4096}",
        "-timeout=60",  # of a clock on the wall: this process may have a small part of a core
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        "-len_control=20",
        f"-artifact_prefix={directory}/",
        f"-seed={random.SystemRandom().randrange(1, 2**31)}",
    ]
    atheris.Setup(
        [sys.argv[0], *options, str(directory / "corpus")],
        lambda data: run(target, data),
        custom_mutator=mutate,
        internal_libfuzzer=True,
    )
    atheris.Fuzz()


def _instrument(atheris: object, value: object, module: str) -> None:
    """Coverage for the functions of our packages, and for the methods of their classes."""
    import types

    instrument = atheris.instrument_func  # type: ignore[attr-defined] # installed for fuzzing only
    if getattr(value, "__module__", None) != module:
        return
    if isinstance(value, types.FunctionType):
        instrument(value)
    elif isinstance(value, type):
        for method in list(vars(value).values()):
            function = getattr(method, "__func__", method)
            if isinstance(function, types.FunctionType) and function.__module__ == module:
                instrument(function)


if __name__ == "__main__":
    main()
