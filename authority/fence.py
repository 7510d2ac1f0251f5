"""The fence: which of two claims of authority is the newer one.

Every state write, input, transfer message and certificate carries a fence, and a receiver that has seen a higher one
drops it. A fence is a pair. Every compare-and-set in the home instance's log raises the *epoch*. Every direct pass
under a delegation (case 3) raises the *sub-epoch*, which the log resets to zero. Pairs compare like version numbers.
"""

from typing import Final, NamedTuple

__all__ = ["EPOCHS_OF_A_HISTORY", "MAX_EPOCH", "Fence", "check_epoch"]

# 64 bits signed, so that every database and language can hold it. At a million transfers of one entity a second it
# lasts 292,000 years. A 16-bit counter (as in the Oculus networked-physics sample) wraps after 65,536 changes.
MAX_EPOCH: Final = 2**63 - 1
# Where two histories of one log part, one continues in a block of its own (`authority.procedures.log_rollback`). There
# are 8 million blocks; JavaScript has the numbers of the first 8,191 exactly. A block lasts 34 years at 1,000 changes
# of one entity in a second, and runs into the next.
EPOCHS_OF_A_HISTORY: Final = 2**40


class Fence(NamedTuple):
    """(epoch, sub-epoch) of one authority over one entity; the higher one wins."""

    epoch: int
    sub: int = 0

    def raised(self) -> "Fence":
        """The fence after the log gave authority away (or back): epoch + 1, no direct passes yet."""
        return Fence(check_epoch(self.epoch + 1), 0)

    def passed(self) -> "Fence":
        """The fence after one direct pass under a delegation of this epoch."""
        return Fence(self.epoch, check_epoch(self.sub + 1))

    def may_follow(self, before: "Fence") -> bool:
        """Whether one step may have led from `before` to this: of the log, or a direct pass.

        A step of the log is one epoch, or leads to the beginning of a later block (`EPOCHS_OF_A_HISTORY`).
        """
        return self in (before.raised(), before.passed()) or (self.epoch > before.epoch and self.begins_block)

    @property
    def begins_block(self) -> bool:
        """Whether it is the first one of a block of epochs; of the first block there is none."""
        return self.epoch > 0 and self.epoch % EPOCHS_OF_A_HISTORY == 0 and self.sub == 0


def check_epoch(value: int) -> int:
    """Return `value` if it is a legal epoch.

    Raises:
        OverflowError: it is outside 0 … 2^63-1; an epoch never wraps.
    """
    if not 0 <= value <= MAX_EPOCH:
        raise OverflowError(f"epoch {value} is outside 0..{MAX_EPOCH}")
    return value
