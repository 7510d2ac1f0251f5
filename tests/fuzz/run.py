"""Run the fuzzer: `python -m tests.fuzz.run --seconds 60 [--only NAME ...]`, or one input: `--replay NAME HEX`.

Each target gets its share of the time, guided by coverage (atheris, which is libFuzzer for Python), in a copy of one
process that has imported everything (`tests.fuzz.inside`). What reaches something new is added to the corpus in
`tests/fuzz/corpus`, smallest first, at most so many bytes per target. A failure is printed with the input that makes it
and ends the run with status 1.
"""

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.inside import PACKAGES
from tests.fuzz.table import CORPUS, TARGETS, load_corpus
from tests.fuzz.target import Target, run, run_bounded

MAX_KEPT_BYTES = 4096
"""Of one target in the corpus; 76 of them stay below 300 kB, in hexadecimal."""

MAX_KEPT_INPUT_BYTES = 2048
MIN_SECONDS_EACH = 3.0
"""In less, libFuzzer does little more than run the corpus once. A budget that is smaller than that for all targets goes
to some of them."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all targets together (default: 300)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="targets; default: all")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "HEX"), help="call one target with one input, and stop")
    parser.add_argument("--look-only", action="store_true", help="leave the corpus as it is")
    parser.add_argument("--seed", type=int, help="for which targets, when the time is not enough for all")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        name, text = arguments.replay
        run_bounded(TARGETS[name], bytes.fromhex(text))
        return 0
    logging.disable(logging.CRITICAL)  # what is dropped may be logged, once per input
    names = chosen(arguments.only or list(TARGETS), arguments.seconds, arguments.seed)
    executions, bad = 0, []
    with Fuzzer() as fuzzer:
        began_s = time.monotonic()
        keeping_s = 0.0
        for number, name in enumerate(names):
            left_s = arguments.seconds - (time.monotonic() - began_s)
            share_s = left_s / (len(names) - number) - keeping_s / max(1, number)
            keep = None if arguments.look_only else _keep
            count, is_good, kept_in_s = _one(fuzzer, TARGETS[name], max(1, round(share_s)), keep)
            keeping_s += kept_in_s
            executions += count
            if not is_good:
                bad.append(name)
        took_s = time.monotonic() - began_s
    _say(f"{len(names)} targets, {executions} executions in {took_s:.0f} s; failed: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def chosen(names: list[str], seconds: float, seed: int | None) -> list[str]:
    """As many of them as there is time for, drawn from the seed, which is told."""
    number = max(1, int(seconds / MIN_SECONDS_EACH))
    if number >= len(names):
        return names
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    _say(f"{seconds:.0f} s are enough for {number} of {len(names)} targets, drawn with --seed {seed}")
    return random.Random(seed).sample(names, number)


class Fuzzer:
    """The process in which everything is imported, once."""

    def __enter__(self) -> "Fuzzer":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.inside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._answer() != "ready":
            raise SystemExit("the process that fuzzes did not start; is atheris installed?")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def fuzz(self, name: str, directory: str, seconds: int) -> int:
        """Fuzz a target from what is in `directory`; the exit status."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds} {name} {directory}\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _one(
    fuzzer: Fuzzer, target: Target, seconds: int, keep: Callable[[Target, list[bytes]], int] | None
) -> tuple[int, bool, float]:
    """Fuzz one target: how many executions, whether nothing was found, how long it took to choose what is kept."""
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "corpus"
        found.mkdir()
        for number, data in enumerate([*target.seeds(), *load_corpus(target.name)]):
            (found / f"kept-{number}").write_bytes(data)
        status = fuzzer.fuzz(target.name, directory, seconds)
        log = (Path(directory) / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        counts = [line for line in log if line.startswith("stat::number_of_executed_units:")]
        count = int(counts[0].split()[-1]) if counts else 0
        for crash in sorted(Path(directory).glob("crash-*")) + sorted(Path(directory).glob("timeout-*")):
            _say(f"FOUND {target.name} {crash.name}: {crash.read_bytes()[:2000].hex()}")
        if status:
            _say("\n".join(log[-60:]))
        began_s = time.monotonic()
        kept = ""
        if keep is not None:
            kept = f", {keep(target, [path.read_bytes() for path in sorted(found.iterdir())])} inputs kept"
        _say(f"{target.name}: {count} executions in {seconds} s{kept}")
        return count, status == 0, time.monotonic() - began_s


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
    packages = tuple(f"/{package.split('.')[0]}/" for package in PACKAGES)

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


if __name__ == "__main__":
    sys.exit(main())
