"""What the code of a simulation may not do, found while it runs in check mode.

Machines agree on `+ - * /` and on square roots of doubles (IEEE 754). They do not agree on the last bits of sines or
powers, on the order of sets, or on what clocks and dice of the system give.
"""

import dis
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

from batonpass.simserver.sync.lockstep.acts import call_site

__all__ = ["NotDeterministic", "only_exact"]

_EXACT: Final = frozenset(
    {"ceil", "copysign", "fabs", "floor", "fmod", "gcd", "isfinite", "isqrt", "lcm", "sqrt", "trunc"}
)
_MODULES: Final = {
    "math": "two machines may return different last bits; use lockstep.turns, integers, or math.sqrt",
    "cmath": "two machines may return different last bits; use integers",
    "random": "every machine draws other numbers; use get_random()",
    "time": "every machine has another time; use the tick",
}
_DICE: Final = "every machine draws other numbers; use get_random()"
_CLOCK: Final = "every machine has another time; use the tick"
_UUID: Final = "every machine makes another one; use get_random(), or the entity's id"
# Of modules that have functions on which machines agree, too. `secrets` draws by these.
_FUNCTIONS: Final = {
    ("_operator", "pow"): ("operator.pow", "a power of a float has other last bits elsewhere; multiply"),
    ("_operator", "ipow"): ("operator.ipow", "a power of a float has other last bits elsewhere; multiply"),
    ("posix", "urandom"): ("os.urandom", _DICE),
    ("posix", "getrandom"): ("os.getrandom", _DICE),
    ("nt", "urandom"): ("os.urandom", _DICE),
    ("datetime", "now"): ("datetime.now", _CLOCK),
    ("datetime", "today"): ("datetime.today", _CLOCK),
    ("datetime", "utcnow"): ("datetime.utcnow", _CLOCK),
    **{("uuid", name): (f"uuid.{name}", _UUID) for name in ("uuid1", "uuid4", "uuid6", "uuid7", "getnode")},
}
_NAMES: Final = {
    "set": "a set has no order that all machines share; use a tuple, or sorted(…)",
    "frozenset": "a set has no order that all machines share; use a tuple, or sorted(…)",
    "hash": "it differs from process to process; use a number that is in a field",
    "id": "it differs from process to process; use the entity's id",
    "pow": "a power of a float has other last bits elsewhere; multiply",
    "sum": "Python 3.12 adds floats in another way than 3.11; add in a loop",
}
# By them, a game could do by another name what it may not do.
_ATTRIBUTES: Final = {
    "__dict__": "what is written by it is in no field that is compared; write to the field",
    "__hash__": _NAMES["hash"],
    **dict.fromkeys(("__pow__", "__rpow__", "__ipow__"), _NAMES["pow"]),
}
_GLOBAL: Final = "it is not saved, so that a client that joins has another; use a field of an entity"
_NOT_LOOKED_AT: Final = (__name__.rpartition(".")[0], "batonpass.authority", "cbor2", "typing", "logging")


class NotDeterministic(RuntimeError):
    """Code of a simulation does what machines do not agree on; the sentence names it, its place, and the remedy."""


@contextmanager
def only_exact() -> Iterator[None]:
    """Raise `NotDeterministic` in the code within, when it does what machines do not agree on.

    It is found as it is called, in whatever module that is. Refused are functions of `math` that are not exact, clocks,
    the system's dice, `hash` and `id`, and sets that are made. So are `**`, `pow` and `sum`, of which a float's is not
    exact, or not the same in all releases of Python. The code takes several times as long. Garbage is collected after
    it: what is told of a collection, such as a profiler, is no part of a simulation, and reads clocks at any place of
    it.
    """
    former, collects = sys.getprofile(), gc.isenabled()
    seen: set[CodeType] = set()

    def watch(frame: FrameType, event: str, callee: Any) -> None:
        if event == "c_call":
            module, name = getattr(callee, "__module__", None), callee.__name__
            owner = getattr(callee, "__self__", None)
            if module is None:
                module = (owner if isinstance(owner, type) else type(owner)).__module__
            homes = {one.__module__ for one in owner.__mro__} if isinstance(owner, type) else {module}
            for home in homes:
                if (home, name) in _FUNCTIONS and not _is_own(frame):
                    _refuse(*_FUNCTIONS[home, name])
            if module in _MODULES and name not in _EXACT and not _is_own(frame):
                _refuse(f"{module}.{name}", _MODULES[module])
        elif event == "call" and frame.f_code not in seen:
            seen.add(frame.f_code)
            if (refused := _FUNCTIONS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))) is not None:
                _refuse(*refused)
            if not _is_own(frame):
                _look_at(frame.f_code)

    gc.disable()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(former)
        if collects:
            gc.enable()


def _is_own(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return any(name == package or name.startswith(f"{package}.") for package in _NOT_LOOKED_AT)


def _look_at(code: CodeType) -> None:
    before: object = None
    for one in dis.get_instructions(code):
        place = f"{code.co_filename}:{one.positions.lineno if one.positions else code.co_firstlineno} {code.co_name}"
        if one.opname == "BINARY_OP" and one.argrepr in ("**", "**="):
            _refuse("**", "a power of a float has other last bits elsewhere; multiply", place)
        # A set of constants is a constant where it is walked through, and harmless where it is looked into.
        if one.opname == "BUILD_SET" or (one.opname == "GET_ITER" and isinstance(before, frozenset)):
            _refuse("a set", _NAMES["set"], place)
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            _refuse(f"writing the global {one.argval}", _GLOBAL, place)
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval in _ATTRIBUTES:
            _refuse(str(one.argval), _ATTRIBUTES[one.argval], place)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval in _NAMES:
            _refuse(f"{one.argval}(…)", _NAMES[one.argval], place)
        before = one.argval


def _refuse(what: str, why: str, place: str = "") -> None:
    raise NotDeterministic(f"{place or call_site()}: {what} in a simulation: {why}")
