"""How often one requester may ask for one entity: a token bucket in the log, with time as an argument.

Every request that the log takes costs a token; tokens come back at a steady rate, up to a burst. What is refused for
another reason costs nothing, because a refusal changes nothing. Without it, a player under the rule `allow` could take
an entity back the moment somebody else has it, as fast as the log goes, and fill a master's questions anew as fast as
they are answered. The bucket is as in RFC 2697, with whole requests for bytes.
"""

from typing import Final

from authority.errors import Reason, Refused

__all__ = ["BURST", "MAX_PACED", "REQUESTS_PER_S", "Paces", "spent"]

BURST: Final = 16
REQUESTS_PER_S: Final = 2.0
# Requesters of one entity that are remembered; the one who asked longest ago is forgotten first.
MAX_PACED: Final = 64


Paces = dict[str, list[float]]
"""Of each requester of one entity: how many tokens it had, and when (Unix time in seconds)."""


def spent(paces: Paces, requester: str, now_s: float) -> Paces:
    """The paces of an entity after one more request.

    Raises:
        Refused: (`too_often`) there is none now.
    """
    paces = dict(paces)
    tokens, since_s = paces.pop(requester, [float(BURST), now_s])
    # A homeserver whose clock is behind gives nothing, and takes nothing back.
    tokens = min(float(BURST), tokens + max(0.0, now_s - since_s) * REQUESTS_PER_S)
    if tokens < 1.0:
        text = f"{requester} asked too often: again in {(1.0 - tokens) / REQUESTS_PER_S:.1f} s"
        raise Refused(Reason.TOO_OFTEN, text, requester=requester)
    if len(paces) >= MAX_PACED:
        del paces[min(paces, key=lambda name: (paces[name][1], name))]
    return {**paces, requester: [tokens - 1.0, max(now_s, since_s)]}
