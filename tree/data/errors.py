"""What can go wrong with the tree, as errors whose codes are stable and travel in answers.

Every error here is an *outcome*: it leaves the tree as it was, and every member of the instance computes the same one.
The errors about nodes carry what Khepri's carry, under its names. These are `node_name`, `node_path`, `node_is_target`
(false when the offender is a parent on the way), `condition` and `node_props`.
"""

from typing import Any, Final

__all__ = [
    "Abort",
    "BadData",
    "BadPath",
    "BadPattern",
    "Compacted",
    "KeepWhileConditionsNotMet",
    "MalformedCommand",
    "MismatchingNode",
    "NodeNotFound",
    "PossiblyManyNodes",
    "ReadOnlyTransaction",
    "TooMuch",
    "TreeError",
    "WatcherCut",
]


class TreeError(Exception):
    """An operation on the tree was refused; nothing has changed.

    `code` is stable and meant for programs, `message` for people, `details` is plain data that names the offender.
    """

    code: str = "tree_error"

    def __init__(self, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.message: Final = message
        self.details: Final = details


class BadPath(TreeError):
    """The path cannot name a node: a name is empty or too long, or there are too many of them."""

    code = "bad_path"


class BadPattern(BadPath):
    """The pattern cannot be read, or asks for something that patterns in this place cannot ask for."""

    code = "bad_pattern"


class BadData(TreeError):
    """The data is not plain, or is nested too deep.

    Only null, booleans, integers from -2^64 to 2^64-1, floats, text, bytes, lists and maps can be kept.
    """

    code = "bad_data"


class NodeNotFound(TreeError):
    """There is no node at this path.

    Details: `node_name`, `node_path`, `node_is_target`, and `condition` if the operation had one.
    """

    code = "node_not_found"


class MismatchingNode(TreeError):
    """A node on the path does not meet its condition.

    Details: `condition`, `node_name`, `node_path`, `node_is_target`, `node_props`.
    """

    code = "mismatching_node"


class PossiblyManyNodes(TreeError):
    """The operation is for one node, and the form of the pattern allows several; use the `_many` form.

    Refused by the form alone, whatever the tree holds. Details: `pattern`.
    """

    code = "possibly_matching_many_nodes"


class KeepWhileConditionsNotMet(TreeError):
    """The node was to be kept while something holds, which does not hold now.

    Details: `node_name`, `node_path`, and `reason`, which tells the watched path and what was expected there.
    """

    code = "keep_while_conditions_not_met"


class ReadOnlyTransaction(TreeError):
    """Something was to be written by a transaction, or a procedure, that may only read."""

    code = "read_only_transaction"


class TooMuch(TreeError):
    """The answer, the number of operations, or the number of registered things is beyond a stated limit."""

    code = "too_much"


class Compacted(TreeError):
    """The events asked for are older than the history that is kept. Read the tree again and watch from there.

    Details: `asked`, and `oldest`, the lowest revision to watch from.
    """

    code = "compacted"

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(
            f"events after revision {asked} are not all kept any more, only those after {oldest}; "
            "read the tree and watch from the revision it was read at",
            {"asked": asked, "oldest": oldest},
        )
        self.asked: Final = asked
        self.oldest: Final = oldest


class WatcherCut(TreeError):
    """The watcher was too slow, or the tree was replaced by a snapshot; watch again from `last_revision`."""

    code = "watcher_cut"

    def __init__(self, last_revision: int, reason: str) -> None:
        super().__init__(
            f"the watcher was cut ({reason}); watch again from revision {last_revision}",
            {"last_revision": last_revision, "reason": reason},
        )
        self.last_revision: Final = last_revision


class MalformedCommand(TreeError):
    """These bytes are not a command, or not one of the kind this member understands."""

    code = "malformed_command"


class Abort(TreeError):
    """Raised by a procedure to answer with an error of its own and leave the tree untouched."""

    def __init__(self, code: str, message: str = "", details: Any = None) -> None:
        super().__init__(message or code, details)
        self.code = code
