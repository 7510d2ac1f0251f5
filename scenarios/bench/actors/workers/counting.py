"""The actor that most rows talk to, here and in the other process."""

from typing import Any

from batonpass.actors import From, Reply, Server


class CountingServer(Server[None]):
    """Counts in an attribute, as most actors of the project do: a cast needs no result."""

    def init(self, arg: Any) -> None:
        """Begin at 0."""
        self.count = 0

    def handle_call(self, request: int, from_: From, state: None) -> Reply[None]:
        """How many casts there were."""
        return Reply(self.count)

    def handle_cast(self, message: int, state: None) -> None:
        """One more."""
        self.count += message
