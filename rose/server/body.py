"""Bodies, parsed in one pass from bytes, whatever the content type says."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rose.server import errors

Body = TypeVar("Body", bound=BaseModel)


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """A posted body.

    Raises:
        ApiError: it is none of this kind (400); it names the first field at fault.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise errors.from_validation(error) from None
