"""What can go wrong with the tree, as errors whose codes are stable and travel in answers.

Every error here is an *outcome*: it leaves the tree as it was, and every member of the instance computes the same one.
"""

from typing import Any, Final

__all__ = ["Abort", "BadData", "BadPath", "MalformedCommand", "MismatchingNode", "NodeNotFound", "TreeError"]


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


class BadData(TreeError):
    """The data is not plain: only null, booleans, 64-bit integers, floats, text, bytes, lists and maps can be kept."""

    code = "bad_data"


class NodeNotFound(TreeError):
    """There is no node at this path."""

    code = "node_not_found"


class MismatchingNode(TreeError):
    """The node at this path does not meet the condition of the operation."""

    code = "mismatching_node"


class MalformedCommand(TreeError):
    """These bytes are not a command, or not one of the kind this member understands."""

    code = "malformed_command"


class Abort(TreeError):
    """Raised by a procedure to answer with an error of its own and leave the tree untouched."""

    def __init__(self, code: str, message: str = "", details: Any = None) -> None:
        super().__init__(message or code, details)
        self.code = code
