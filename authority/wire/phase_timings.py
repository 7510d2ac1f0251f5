"""From the marks and hops of a finished transfer's trace to how long its phases took.

Every server stamps with its own monotonic clock, which all processes of one machine share. Between machines the phases
that begin and end on different servers are off by the distance of their clocks.
"""

from typing import Final

from batonpass.authority.wire.hops import Trace

__all__ = ["PHASES", "timings_ms"]

PHASES: Final = {
    "request": "from the freeze until the deciding homeserver had the request (on the way back home: H hops further)",
    "rule": "whether it may be: the rule, and whether the target's home would have it (H hops there and back)",
    "commit": "the compare-and-set in the home instance's log",
    "state": "from the freeze until the target held the state, while the request was on its way",
    "activation": "from the commit (without one: from the arrival of the state) until the target simulated",
    "total": "from the freeze until the target simulated",
}


def timings_ms(trace: Trace) -> dict[str, float]:
    """How long each of the `PHASES` took, in milliseconds; those whose ends were not noted are left out.

    Request, rule, commit and activation add up to `total`; the state travels beside them. Of a repeated transfer only
    the state and the total are known: the other marks are those of the repetition.
    """
    frozen, activated, staged = trace.at("frozen"), trace.at("activated"), trace.at("staged")
    ruling, deciding, committed = trace.at("ruling"), trace.at("deciding"), trace.at("committed")
    arrived = trace.hops[0].received_ns if trace.hops and trace.hops[0].dst else None
    spans = {
        # Under a delegation no home decides: the first message goes to the target itself.
        "request": (frozen, arrived if ruling is None else ruling),
        "rule": (ruling, deciding),
        "commit": (deciding, committed),
        "state": (frozen, staged),
        "activation": (staged if committed is None else committed, activated),
        "total": (frozen, activated),
    }
    known = ("state", "total") if trace.is_repeated else tuple(spans)
    ends = {name: spans[name] for name in known}
    return {name: (end - begin) / 1e6 for name, (begin, end) in ends.items() if begin is not None and end is not None}
