"""Scenes of this package."""

import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.scene.workers.streams import (
    MESSAGES,
    MIXED_COMPONENTS,
    mixed_chunks,
    network_chunks,
    transform_chunks,
)
from batonpass.simserver.sync.scene.codec import read_chunk_untrusted, write_run
from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.store import TRANSFORM

_PEER: Final = "peer"
_WARM_UP: Final = 0.15
_UNPACK_TRANSFORM: Final = struct.Struct("<10fI").unpack


def _per_cpu_second(work: Callable[[], int], seconds: float) -> float:
    """How many messages a second of processor time `work` takes, which says how many it took."""
    done, took_s = 0, 0.0
    for part in (seconds * _WARM_UP, seconds):
        done, began_s = 0, time.process_time()
        while (took_s := time.process_time() - began_s) < part:
            done += work()
    return done / took_s


def _read(chunks: Sequence[bytes]) -> Callable[[], int]:
    def work() -> int:
        expect(sum(len(run) for chunk in chunks for run in read_chunk_untrusted(chunk).runs), len(chunks) * MESSAGES)
        return len(chunks) * MESSAGES

    return work


def _write(chunks: Sequence[bytes]) -> Callable[[], int]:
    runs = [run for chunk in chunks for run in read_chunk_untrusted(chunk).runs]

    def work() -> int:
        expect(sum(len(write_run(*run)) for run in runs), sum(map(len, chunks)))
        return len(chunks) * MESSAGES

    return work


def _apply(chunks: Sequence[bytes], components: Sequence[int], *, decode: bool) -> Callable[[], int]:
    def work() -> int:
        scene = SceneReplica("bench", components)
        scene.connect(_PEER)
        values = scene.elements(TRANSFORM).values
        for chunk in chunks:
            scene.receive(_PEER, chunk)
            changes = scene.apply().changes
            expect(sum(map(len, changes)), MESSAGES)
            if decode:
                for run in changes:
                    for entity in run.columns[0]:
                        _UNPACK_TRANSFORM(values[entity] or b"")
            scene.flush()
        return len(chunks) * MESSAGES

    return work


def _network_s(entities: int, seconds: float) -> float:
    """Processor time for a message to one of `entities`."""
    first, *chunks = network_chunks(entities)
    done, took_s = 0, 0.0
    while took_s < seconds:
        scene = SceneReplica("bench")
        scene.connect(_PEER, PeerKind.NETWORK)
        scene.receive(_PEER, first)
        scene.apply()
        scene.flush()
        began_s = time.process_time()
        for chunk in chunks:
            scene.receive(_PEER, chunk)
            expect(sum(map(len, scene.apply().changes)), entities)
            scene.flush()
        took_s += time.process_time() - began_s
        done += len(chunks) * entities
    return took_s / done


def _main() -> None:
    work, seconds = arguments("batonpass")
    match work:
        case "read":
            tell(_per_cpu_second(_read(transform_chunks()), seconds))
        case "write":
            tell(_per_cpu_second(_write(transform_chunks()), seconds))
        case "apply":
            tell(_per_cpu_second(_apply(transform_chunks(), (), decode=True), seconds))
        case "apply-mixed":
            tell(_per_cpu_second(_apply(mixed_chunks(), MIXED_COMPONENTS, decode=False), seconds))
        case "network":
            few_s = _network_s(100, seconds / 2)
            tell(_network_s(10_000, seconds / 2) / few_s)
        case _:
            raise ValueError(work)


if __name__ == "__main__":
    _main()
