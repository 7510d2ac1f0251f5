"""A saved timeline: a file, or what a peer who joins is given."""

from batonpass.simserver.sync.timeline.persistence import NotPersistent, dump, load_untrusted
from batonpass.simserver.sync.timeline.steward import TimeSteward
from tests.fuzz.target import Target
from tests.simserver.sync.timeline.village import TYPES, make_village


def _saved() -> list[bytes]:
    snapshots = [TimeSteward(make_village).snapshot_before(base) for base in (0, 40)]
    return [dump(snapshot, TYPES) for snapshot in snapshots if snapshot is not None]


TARGETS = [
    Target(
        "timeline-saved",
        lambda data: load_untrusted(data, TYPES),
        ["batonpass.simserver.sync.timeline.persistence:load_untrusted"],
        _saved,
        (NotPersistent,),
        plain="cbor",
    ),
]
