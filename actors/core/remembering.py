"""What is kept of the reason of an end, as long as a ref to it is kept.

A reason that is an exception holds its traceback, that the frames of the callbacks that it came through, and those the
state that they had in their hands. Exceptions are also shared: all that were told of the end have this one, and others
may be handling it. So nothing is done to it and its frames; what is kept is a likeness, without traceback, and those
who are told of an end at the time are told the reason itself.

This module is pure: it imports no trio.
"""

from __future__ import annotations

import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from batonpass.actors.core.exits import Reason, cause_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EXCEPTIONS: Final = 32
"""Of the causes and contexts of one reason; those beyond are kept as sentences."""

_NOT_KEPT: Final = frozenset({"args", "__cause__", "__context__", "__dict__", "__traceback__", "obj"})
"""`obj` of an AttributeError is what did not have the attribute: the state, say."""

_HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that was made by a `class` statement, which may have an `__init__` of its own."""


@final
class Memory:
    """Makes likenesses, within `with memory:`. Of a thousand actors that end of one reason there, all keep the same.

    It holds the reasons themselves until the outermost such block ends.
    """

    __slots__ = ("_depth", "_made")

    def __init__(self) -> None:
        self._made: dict[int, tuple[BaseException, BaseException]] = {}
        self._depth = 0

    def __enter__(self) -> Memory:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._made.clear()

    def of(self, reason: Reason) -> Reason:
        """What to keep of `reason`: itself, unless it is an exception, or one with `"shutdown"`."""
        error = cause_of(reason)
        if error is None:
            return reason
        known = self._made.get(id(error))
        if known is None:
            known = self._made[id(error)] = (error, _Likeness().of(error))
        return known[1] if error is reason else ("shutdown", known[1])


@final
class _Likeness:
    """An exception, and those that it names, as they were, but for tracebacks. No code of theirs is run."""

    def __init__(self) -> None:
        self._made: dict[int, BaseException] = {}

    def of(self, error: BaseException) -> BaseException:
        try:
            like = _new(error, self._kept(error.args))
        except Exception:
            # A class whose instances no other can make. Its text is better than nothing, and than its frames.
            like = self._made[id(error)] = Exception(shown(error))
            return like
        self._made[id(error)] = like
        for name, value in _attributes(error):
            _put(like, name, self._kept(value))
        like.__cause__, like.__context__ = self._kept(error.__cause__), self._kept(error.__context__)
        like.__suppress_context__ = error.__suppress_context__
        return like

    def _kept(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            made = self._made.get(id(value))
            if made is not None:
                return made
            return self.of(value) if len(self._made) < MAX_EXCEPTIONS else Exception(shown(value))
        if type(value) in (tuple, list) and any(isinstance(item, BaseException | tuple | list) for item in value):
            return type(value)(map(self._kept, value))
        return value


def _new(error: BaseException, args: tuple[Any, ...]) -> BaseException:
    kind = type(error)
    made_by_c = next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
    made: BaseException = made_by_c.__new__(kind, *args)
    made.args = args
    return made


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    """All that it has beside its arguments: in its dict, in slots, and in what C knows of it."""
    yield from list(vars(error).items())
    for kind in type(error).__mro__:
        for name, attribute in list(vars(kind).items()):
            if name not in _NOT_KEPT and isinstance(attribute, types.MemberDescriptorType | types.GetSetDescriptorType):
                try:
                    yield name, attribute.__get__(error)
                except AttributeError:
                    continue


def _put(like: BaseException, name: str, value: Any) -> None:
    if value is not None:
        with suppress(AttributeError, TypeError):  # what cannot be changed is as it was made
            object.__setattr__(like, name, value)
