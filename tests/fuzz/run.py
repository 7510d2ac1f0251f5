"""Run the fuzzer: `python -m tests.fuzz.run --seconds 60 [--only NAME ...]`, or one input: `--replay NAME HEX`.

Each target gets its share of the time in a process of its own, guided by coverage (atheris, which is libFuzzer for
Python). What reaches something new is added to the corpus in `tests/fuzz/corpus`, smallest first, at most so many bytes
per target. A failure is printed with the input that makes it and ends the run with status 1.
"""

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import plain
from tests.fuzz.table import CORPUS, TARGETS, load_corpus
from tests.fuzz.target import MAX_INPUT_BYTES, Target, run, run_bounded

MAX_KEPT_BYTES = 4096
"""Of one target in the corpus; 76 of them stay below 300 kB, in hexadecimal."""

MAX_KEPT_INPUT_BYTES = 2048
_MODULES = (
    "actors",
    "authority",
    "crypto",
    "homeserver",
    "scenarios.sectors_map",
    "scenarios.sectors_position",
    "simserver",
    "tree",
)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all targets together (default: 300)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="targets; default: all")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "HEX"), help="call one target with one input, and stop")
    parser.add_argument("--inside", nargs=2, metavar=("NAME", "DIRECTORY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.replay is not None:
        name, text = arguments.replay
        run_bounded(TARGETS[name], bytes.fromhex(text))
        return 0
    if arguments.inside is not None:
        name, directory = arguments.inside
        _fuzz(TARGETS[name], Path(directory), arguments.seconds)
        return 0
    logging.disable(logging.CRITICAL)  # what is dropped may be logged, once per input
    names = arguments.only or list(TARGETS)
    executions, bad = 0, []
    began_s = time.monotonic()
    for name in names:
        count, is_good = _one(TARGETS[name], arguments.seconds / len(names))
        executions += count
        if not is_good:
            bad.append(name)
    took_s = time.monotonic() - began_s
    _say(f"{len(names)} targets, {executions} executions in {took_s:.0f} s; failed: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _one(target: Target, seconds: float) -> tuple[int, bool]:
    """Fuzz one target in a process of its own; how many executions, and whether nothing was found."""
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "corpus"
        found.mkdir()
        for number, data in enumerate([*target.seeds(), *load_corpus(target.name)]):
            (found / f"kept-{number}").write_bytes(data)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.run",
            "--seconds",
            str(seconds),
            "--inside",
            target.name,
            directory,
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        counts = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units:")]
        count = int(counts[0].split()[-1]) if counts else 0
        for crash in sorted(Path(directory).glob("crash-*")) + sorted(Path(directory).glob("timeout-*")):
            _say(f"FOUND {target.name} {crash.name}: {crash.read_bytes()[:2000].hex()}")
        if done.returncode:
            _say("\n".join(done.stderr.splitlines()[-60:]))
        kept = _keep(target, [path.read_bytes() for path in sorted(found.iterdir())])
        _say(f"{target.name}: {count} executions, {kept} inputs kept")
        return count, done.returncode == 0


def _keep(target: Target, inputs: list[bytes]) -> int:
    """The smallest inputs that together reach every line that any of them reaches, up to MAX_KEPT_BYTES."""
    lines_of: dict[bytes, frozenset[tuple[str, int]]] = {}
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        if len(data) <= MAX_KEPT_INPUT_BYTES:
            lines_of[data] = _lines_reached(target, data)
    kept: list[bytes] = []
    reached: set[tuple[str, int]] = set()
    budget = MAX_KEPT_BYTES
    for data, lines in lines_of.items():
        if lines - reached and len(data) <= budget:
            kept.append(data)
            reached |= lines
            budget -= len(data)
    CORPUS.mkdir(exist_ok=True)
    text = "".join(f"{data.hex()}\n" for data in kept if data)
    (CORPUS / f"{target.name}.hex").write_text(text, encoding="ascii")
    return len(kept)


def _lines_reached(target: Target, data: bytes) -> frozenset[tuple[str, int]]:
    reached: set[tuple[str, int]] = set()
    packages = tuple(f"/{package.split('.')[0]}/" for package in _MODULES)

    def trace(frame: object, event: str, argument: object) -> object:
        code = frame.f_code  # type: ignore[attr-defined] # a frame; sys.settrace says so in its documentation only
        if not any(package in code.co_filename for package in packages) or "/tests/" in code.co_filename:
            return None
        reached.add((code.co_filename, frame.f_lineno))  # type: ignore[attr-defined] # as above
        return trace

    sys.settrace(trace)  # type: ignore[arg-type] # as above
    try:
        run(target, data)
    except Exception:
        return frozenset(reached)
    finally:
        sys.settrace(None)
    return frozenset(reached)


def _fuzz(target: Target, directory: Path, seconds: float) -> None:
    """Never returns: atheris ends the process."""
    import atheris

    import scenarios.cluster

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_MODULES)]
    for module in modules:
        for value in list(vars(module).values()):
            _instrument(atheris, value, module.__name__)
    _ = scenarios.cluster

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if target.plain and rng.random() < 0.6:
            mutated = plain.mutate(data, target.plain, rng, max_size)
            if mutated is not None:
                return mutated
        return bytes(atheris.Mutate(data, max_size))

    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={MAX_INPUT_BYTES if not target.plain else 4096}",
        "-timeout=10",
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
    sys.exit(main())
