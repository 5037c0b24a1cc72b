"""Reads the parameters in the address of a request: the part after its question mark."""

from collections.abc import Collection

from starlette.requests import Request

from hrag.gateway.protojson.json_reader import shown
from hrag.values.errors import InvalidArgument


def parameters(request: Request, known: Collection[str]) -> dict[str, str]:
    """Returns the parameters of the address; each must be in `known` and may occur once.

    Raises InvalidArgument for other parameters. Whether a value is missing or malformed is checked
    by the service that is called.
    """
    entries = request.query_params.multi_items()
    names = [name for name, _ in entries]
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"{shown(name)} is not a parameter; allowed are {', '.join(known)}",
                field=shown(name),
            )
        if names.count(name) > 1:
            raise InvalidArgument(f"the parameter {name} occurs twice; send it once", field=name)
    return dict(entries)
