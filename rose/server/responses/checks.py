"""Reading parts of a posted body, with errors that name the part."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rose.protocol import InvalidRequestError
from rose.server.errors import shown

Part = TypeVar("Part", bound=BaseModel)


def check(condition: bool, param: str, wanted: str, found: object) -> None:
    """Refuse a value.

    Raises:
        InvalidRequestError: the condition does not hold.
    """
    if not condition:
        raise InvalidRequestError(f"{param} must be {wanted}; got {shown(found)}", param)


def matching(model: type[Part], value: Mapping[str, object], where: str) -> Part:
    """The value as this model.

    Args:
        model: what it must be.
        value: as posted.
        where: the path to it in the body.

    Raises:
        InvalidRequestError: it is something else; the error names the field within.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=True)[0]
        param = where + "".join(_step(step) for step in first["loc"])
        if first["type"] == "missing":
            raise InvalidRequestError(f"{param} is required", param) from None
        if first["type"] == "extra_forbidden":
            message = f"unknown field {param}: leave it out"
            raise InvalidRequestError(message, param) from None
        message = f"{param}: {first['msg']}; got {shown(first['input'])}"
        raise InvalidRequestError(message, param) from None


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"
