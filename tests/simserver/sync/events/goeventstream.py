"""GoEventStream's rules once more, written down as plainly as they can be: what recorded traces do not cover.

A twin of the original, with its faults. It has one stream and a clock in milliseconds; that it does what the original
does is shown by the recorded traces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

TICK_MS: Final = 50
SILENCE_MS: Final = 10_000


class GoEventStream:
    """One stream of the original, begun at `now_ms`. Its answers have the members of the recorded rows."""

    def __init__(self, now_ms: int) -> None:
        self._ticked_ms = now_ms
        self._tick = self._sent = 0
        self._made = 0
        self._log: Final[list[dict[str, Any]]] = [{"T": 1, "Type": "_a", "Origin": "_", "Body": "<seed>"}]
        self._public_ids: Final[dict[str, str]] = {}
        self._heard_ms: Final[dict[str, int]] = {}
        self._states: Final[dict[str, dict[str, Any]]] = {}

    def process(
        self,
        now_ms: int,
        client: str,
        known: int,
        events: Sequence[Mapping[str, str]],
        state: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        """What a request is answered."""
        elapsed_ms = now_ms - self._ticked_ms
        if elapsed_ms > TICK_MS:
            self._tick += elapsed_ms // TICK_MS
            self._ticked_ms = now_ms - elapsed_ms % TICK_MS
        for silent in [each for each, heard_ms in self._heard_ms.items() if now_ms - heard_ms > SILENCE_MS]:
            del self._heard_ms[silent]
            self._states.pop(silent, None)
            self._append("_d", "_", self._public_ids.pop(silent))
        if client not in self._heard_ms:
            self._made += 1
            self._public_ids[client] = str(self._made)
            self._append("_c", "_", self._public_ids[client])
        self._heard_ms[client] = now_ms
        for event in events:
            self._append(event["Type"], self._public_ids[client], event["Body"])
        if state is not None:
            row = {"T": self._tick + 1, "Origin": self._public_ids[client], "Data": dict(sorted(state.items()))}
            self._states[client] = row
        self._sent = self._tick
        return {
            "T": self._tick,
            "Events": [event for event in self._log if known < event["T"] <= self._tick],
            "States": [row for row in self._states.values() if row["T"] > known],
            "ProxyId": self._public_ids[client],
        }

    def _append(self, kind: str, origin: str, body: str) -> None:
        self._log.append({"T": self._sent + 1, "Type": kind, "Origin": origin, "Body": body})
