"""No application is made of routes that the table of callers does not have, or has otherwise."""

import pytest
from fastapi import Depends, FastAPI
from fastapi.params import Depends as Dependency
from fastapi.security import HTTPBearer

from batonpass.actors.http.app import bearer_access, prepare_app
from batonpass.actors.http.callers import Caller, CallersDiffer, RouteCallers, check_callers

_SCHEME = HTTPBearer(auto_error=False)
_TABLE: RouteCallers = {
    ("GET", "/openapi.json"): Caller.ANYBODY,
    ("GET", "/looked/at"): Caller.ANYBODY,
    ("POST", "/changed/{name}"): Caller.OPERATOR,
    ("PUT", "/owned"): Caller.PLAYER,
}


Callers = tuple[Caller, ...]


def app_of(changing: Callers = (Caller.OPERATOR,), owning: Callers = (Caller.AT_DOOR,)) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    prepare_app(app)

    def letting_in(callers: Callers) -> list[Dependency]:
        return [Depends(bearer_access(caller, _SCHEME, lambda _: None)) for caller in callers]

    @app.get("/looked/at")
    async def look() -> None: ...

    @app.post("/changed/{name:path}", dependencies=letting_in(changing))
    async def change(name: str) -> None: ...

    @app.put("/owned", dependencies=letting_in(owning))
    async def own() -> None: ...

    return app


def test_an_application_of_which_every_route_is_as_its_row_says_is_made() -> None:
    check_callers(app_of(), _TABLE)


@pytest.mark.parametrize("callers", [(), (Caller.CLIENT,), (Caller.AT_DOOR,), (Caller.OPERATOR, Caller.CLIENT)])
def test_a_route_that_asks_for_another_right_than_its_row_says_is_refused(callers: Callers) -> None:
    with pytest.raises(CallersDiffer, match=r"POST /changed/\{name\} lets in .*, and the table says the role operator"):
        check_callers(app_of(callers), _TABLE)
    if callers != (Caller.AT_DOOR,):
        with pytest.raises(CallersDiffer, match="PUT /owned lets in"):
            check_callers(app_of(owning=callers), _TABLE)


def test_a_route_that_asks_for_a_right_where_its_row_says_all_is_refused() -> None:
    with pytest.raises(CallersDiffer, match="lets in the role operator, and the table says all"):
        check_callers(app_of(), {**_TABLE, ("POST", "/changed/{name}"): Caller.SEALED})


def test_a_route_without_a_row_is_refused_whatever_it_does() -> None:
    for row in _TABLE:
        with pytest.raises(CallersDiffer, match="has no row"):
            check_callers(app_of(), {one: caller for one, caller in _TABLE.items() if one != row})


def test_a_row_without_a_route_is_refused() -> None:
    with pytest.raises(CallersDiffer, match=r"\('GET', '/gone'\)"):
        check_callers(app_of(), {**_TABLE, ("GET", "/gone"): Caller.ANYBODY})
