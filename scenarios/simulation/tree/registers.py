"""What simulated clients do with a key, and what it must come to: the sequential specification of one register.

The value of a key is a string, or None while it was never written. Tokens that are appended are unique, so that one
that was applied twice shows in the value.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["ABSENT", "Action", "Append", "CompareAndSwap", "Get", "RegisterPut", "Value", "apply_action"]

Value = str | None
ABSENT: Final = None


@dataclass(frozen=True, slots=True)
class RegisterPut:
    """Write; answers None."""

    value: str


@dataclass(frozen=True, slots=True)
class Get:
    """Read; answers the value."""


@dataclass(frozen=True, slots=True)
class CompareAndSwap:
    """Write if the value is the expected one; answers whether it was."""

    expected: Value
    value: str


@dataclass(frozen=True, slots=True)
class Append:
    """Add a token at the end; answers the value afterwards."""

    token: str


Action = RegisterPut | Get | CompareAndSwap | Append


def apply_action(value: Value, action: Action) -> tuple[Value, Value | bool]:
    """The value afterwards, and the answer."""
    match action:
        case RegisterPut(new):
            return new, None
        case Get():
            return value, value
        case CompareAndSwap(expected, new):
            return (new, True) if value == expected else (value, False)
        case Append(token):
            longer = (value or "") + token
            return longer, longer
