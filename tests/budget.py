"""How much a run of the tests looks for: one choice, the hypothesis profile, for all that can be had more of.

`HYPOTHESIS_PROFILE` names it. `dev` on a desk and `ci` where `CI` is set take a quarter, so that `make test` stays
within its ten minutes; examples are others in each run of `dev`, and add up over runs. `deep` takes all (`make deep`),
and `night` much more of what has no number of its own. What has to be found is found with each of them.
"""

import os
from typing import Final

__all__ = ["DEEP", "PROFILE", "WORKERS", "examples"]

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
DEEP: Final = PROFILE in {"deep", "night"}
WORKERS: Final = (os.cpu_count() or 1) if DEEP else 1
"""How many processes run the seeds of a campaign: each imports for two seconds what it runs, beside other tests."""


def examples(deep: int, fewest: int = 10) -> int:
    """How many examples a property has, or how many seeds a search, of so many in a deep run."""
    return deep if DEEP else max(min(deep, fewest), deep // 4)
