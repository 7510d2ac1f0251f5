"""Desync reports: where two clients differ first, from what each of them shows of the tick.

A client shows a tick as a *dump*, a JSON text of at most 1 MiB, which the stream's server keeps without reading it:

    {"tick": n, "hash": hex, "state": base64 of the snapshot, "events": [{"T", "Type", "Origin", "Body"}, …],
     "acts": [{"what", "of", "value", "site"}, …] or null, "hashes": [[tick, hex], …]}

`explain` compares two of them. What differs is named in the order of causes: the events of the tick (then the stream
was not one), the draws and writes, the fields.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.lockstep.acts import Act
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, freeze, state_hash
from batonpass.simserver.sync.lockstep.driver import SimDriver, TickRecord

__all__ = ["MAX_DUMP_CHARS", "DesyncReport", "Difference", "DumpRefused", "dump_of", "dump_of_record", "explain"]

MAX_DUMP_CHARS: Final = 1024 * 1024
MAX_DIFFERENCES: Final = 20
_MISSING: Final = "(missing)"
_EVENT: Final = ("T", "Type", "Origin", "Body")


class DumpRefused(ValueError):
    """A text is no dump, or two are not of the same tick; the sentence says what to do."""


class Difference(NamedTuple):
    """A value that differs."""

    entity: int | None
    """The entity's id, or None for what is not of an entity."""
    kind: str
    """Its class; else what it is: `Events`, `Random`, `Next`, `Pending`."""
    path: str
    """The field, and the way into its value: `items[2].name`."""
    left: Any
    right: Any

    def __str__(self) -> str:
        place = self.kind if self.entity is None else f"{self.kind} {self.entity}"
        name = f"{place}.{self.path}" if self.path[:1] not in ("", "[") else f"{place}{self.path}"
        return f"{name}: {_shown(self.left)} here, {_shown(self.right)} there"


class DesyncReport(NamedTuple):
    """What differs first between two clients; *here* is the first dump, *there* the second."""

    tick: int
    """The first tick that differs."""
    differences: tuple[Difference, ...]
    """The first of them in the order of the state: at most 20."""
    act: tuple[int, Act | None, Act | None] | None
    """Index and both sides of the first draw or write that differs; None without trace mode on both sides."""

    def __str__(self) -> str:
        lines = [f"tick {self.tick} is the first that differs"]
        if self.act is not None:
            index, left, right = self.act
            lines.append(f"  draw or write {index} of the tick: {_shown_act(left)} here, {_shown_act(right)} there")
        lines += [f"  {difference}" for difference in self.differences]
        return "\n".join(lines)


def dump_of(driver: SimDriver, tick: int) -> str | None:
    """Return the dump of a tick, or None if the driver keeps it no more; raises as `dump_of_record`."""
    record = driver.record(tick)
    return None if record is None else dump_of_record(record, driver.records())


def dump_of_record(record: TickRecord, kept: Iterable[TickRecord]) -> str:
    """Return the dump of a tick.

    Args:
        record: of the tick.
        kept: those of other ticks, whose hashes are told.

    Raises:
        DumpRefused: its state alone is longer than a dump may be.
    """
    shown: dict[str, Any] = {
        "tick": record.tick,
        "hash": record.hash,
        "state": base64.b64encode(record.state).decode(),
        "events": [dict(zip(_EVENT, event, strict=True)) for event in record.events],
        "acts": None if record.acts is None else [act._asdict() for act in record.acts],
        "hashes": [[one.tick, one.hash] for one in kept],
    }
    while len(text := json.dumps(shown, default=_in_json, separators=(",", ":"))) > MAX_DUMP_CHARS:
        if not shown["acts"]:
            raise DumpRefused(f"the state of tick {record.tick} has {len(record.state)} bytes, too many for a dump")
        # The first difference is likelier early in the tick.
        shown["acts"] = shown["acts"][: len(shown["acts"]) // 2]
    return text


def explain(here: str, there: str) -> DesyncReport | None:
    """Return what differs between the dumps of two clients, or None if their states are equal.

    Args:
        here: the dump of one client. It may come from any client.
        there: that of another.

    Raises:
        DumpRefused: one is no dump, or another tick than theirs is the first that differs: dump that one.
    """
    left, right = _read_untrusted(here), _read_untrusted(there)
    hashes = dict(left["hashes"])
    earlier = [tick for tick, hashed in right["hashes"] if tick in hashes and hashes[tick] != hashed]
    first = min([*earlier, left["tick"]])
    if left["tick"] != right["tick"] or first < left["tick"]:
        raise DumpRefused(
            f"the dumps are of ticks {left['tick']} and {right['tick']}: dump tick {min(first, right['tick'])} of both"
        )
    if left["hash"] == right["hash"]:
        return None
    differences: list[Difference] = []
    _compare(None, "Events", "", left["events"], right["events"], differences)
    _compare_states(left["state"], right["state"], differences)
    return DesyncReport(left["tick"], tuple(differences[:MAX_DIFFERENCES]), _first_act(left["acts"], right["acts"]))


def _compare_states(left: Any, right: Any, found: list[Difference]) -> None:
    sides = [{row[0]: row for row in state["Entities"]} for state in (left, right)]
    for id in [*sides[0], *(id for id in sides[1] if id not in sides[0])]:
        one, other = (side.get(id) for side in sides)
        kind = str((one or other or (0, ""))[1])
        if one is None or other is None or one[1] != other[1]:
            found.append(
                Difference(id, kind, "", _MISSING if one is None else one[1], _MISSING if other is None else other[1])
            )
        else:
            _compare(id, kind, "", one[2], other[2], found)
    if list(sides[0]) != list(sides[1]) and sides[0].keys() == sides[1].keys():
        found.append(Difference(None, "Entities", "", tuple(sides[0]), tuple(sides[1])))
    for name in ("Random", "Next", "Pending", "Tick"):
        _compare(None, name, "", left[name], right[name], found)


def _compare(entity: int | None, kind: str, path: str, left: Any, right: Any, found: list[Difference]) -> None:
    if len(found) >= MAX_DIFFERENCES:
        return
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            inner = f"{path}.{key}" if path else key
            _compare(entity, kind, inner, left.get(key, _MISSING), right.get(key, _MISSING), found)
    elif isinstance(left, tuple) and isinstance(right, tuple):
        for at in range(max(len(left), len(right))):
            one, other = (side[at] if at < len(side) else _MISSING for side in (left, right))
            _compare(entity, kind, f"{path}[{at}]", one, other, found)
    elif left != right or (isinstance(left, bool) is not isinstance(right, bool)):
        found.append(Difference(entity, kind, path, left, right))


def _first_act(left: Sequence[Act] | None, right: Sequence[Act] | None) -> tuple[int, Act | None, Act | None] | None:
    if left is None or right is None:
        return None
    for index in range(max(len(left), len(right))):
        one = left[index] if index < len(left) else None
        other = right[index] if index < len(right) else None
        if one is None or other is None or one.content != other.content:
            return index, one, other
    return None


def _read_untrusted(text: str) -> dict[str, Any]:
    if len(text) > MAX_DUMP_CHARS:
        raise DumpRefused(f"a dump has at most {MAX_DUMP_CHARS} characters, not {len(text)}")
    try:
        shown = json.loads(text)
        data = base64.b64decode(shown["state"], validate=True)
        acts = shown.get("acts")
        state = decode_untrusted_state(data)
        entities = [(int(id), str(kind), dict(fields)) for id, kind, fields in state["Entities"]]
        return {
            "tick": int(state["Tick"]),
            "hash": state_hash(data),
            "state": {**{name: state[name] for name in ("Random", "Next", "Pending", "Tick")}, "Entities": entities},
            "events": tuple(tuple(row[name] for name in _EVENT) for row in shown["events"]),
            "acts": None if acts is None else [_read_act(row) for row in acts],
            "hashes": [(int(tick), str(hashed)) for tick, hashed in shown.get("hashes") or ()],
        }
    except (NotCanonical, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise DumpRefused(f"this text is no dump of a tick: {error!r}") from error


def _read_act(row: Any) -> Act:
    return Act(str(row["what"]), str(row["of"]), freeze(row["value"]), str(row["site"]))


def _in_json(value: Any) -> Any:
    """Values that JSON has not: read-only maps, and bytes, which are shown only."""
    return value.hex() if isinstance(value, bytes) else dict(value)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return _MISSING
    text = repr(_plain(value))
    return text if len(text) <= 80 else text[:77] + "…"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _shown_act(act: Act | None) -> str:
    return "none" if act is None else f"{act.what} {act.of} = {_shown(act.value)} at {act.site}"
