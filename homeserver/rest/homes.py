"""Whether a name is of this instance: rows and records live where their names say, and are changed only there."""

from batonpass.actors.http.app import ApiError
from batonpass.authority.errors import Reason
from batonpass.authority.names import instance_of

__all__ = ["check_home"]


def check_home(instance: str, *names: str) -> None:
    """Raise `ApiError` (421 `wrong_home`) for the first of `names` that is not of `instance`; its value is the name."""
    for name in names:
        home = instance_of(name)
        if home != instance:
            raise ApiError(421, Reason.WRONG_HOME, f"{name} is at home in {home}, this is {instance}", name)
