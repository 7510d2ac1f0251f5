"""Numbers of JSON, where Python's own reader is generous: to it, `1e400` is infinity, which no JSON can say again."""

import math

__all__ = ["finite_number"]


def finite_number(text: str) -> float:
    """The number that this text is, for `parse_float` of Python's readers.

    Raises ValueError if it is beyond what a double has.
    """
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:32]} is beyond what can be read: at most 1.8e308")
    return number
