"""What may be asked, and the one sentence that answers whatever may not."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

MOST = 1000  # items a list
LONGEST = 50_000  # ids in a question
SHARES = 100_000  # of an explanation: items a list × items of the history, some half second
EXAMPLE = 'the question must be a JSON object such as {"history": ["12"]}'


def _id(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("text or a whole number")
    try:
        str(value).encode()
    except UnicodeEncodeError:  # half of a pair, which no answer could hold
        raise ValueError("text that UTF-8 can hold") from None
    return value


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Id = Annotated[str | int, BeforeValidator(_id)]
# the first mistake ends the reading: a million of them would take seconds to collect
Ids = Annotated[list[Id], Field(max_length=LONGEST, fail_fast=True)]
Texts = Annotated[list[str], Field(max_length=LONGEST, fail_fast=True), BeforeValidator(_several)]


class Question(BaseModel):
    """Whom to recommend to, a known user or anybody with a history, and from what."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Id | None = None
    history: Ids | None = None
    k: int = Field(20, ge=1, le=MOST)
    exclude_seen: bool = True
    only: Ids | None = None
    without: Ids | None = None
    genre: Texts | None = None
    explain: bool = False


def sentence(status: int, text: str, headers: Any = None) -> JSONResponse:
    """An answer that is one line of text, whatever was put into it."""
    line = " ".join(text.encode(errors="replace").decode().split())
    return JSONResponse({"error": line}, status, headers)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """What the recommender does not do."""
    return sentence(422, str(error))


async def answered(_: Request, error: Exception) -> JSONResponse:
    """Addresses and methods that there are not, and bodies that cannot be read at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return sentence(422, EXAMPLE)
    return sentence(error.status_code, error.detail, error.headers)


async def misread(request: Request, error: Exception) -> JSONResponse:
    """The first thing wrong with a question: its name, the rule and what was given."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid" or len(where) == 1:
        if "json" not in request.headers.get("content-type", "json"):
            return sentence(422, "the question must be sent as Content-Type: application/json")
        return sentence(422, EXAMPLE)
    name, got = ".".join(where[1:])[:100], f"got {str(first.get('input'))[:100]!r}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(Question.model_fields)
        return sentence(422, f"unknown setting {name!r}; known are {known}")
    if first["type"] == "missing":
        return sentence(422, f"{name!r} must be given")
    if first["type"] == "value_error":
        return sentence(422, f"{name!r} must be {first['ctx']['error']}, {got}")
    _, should, rule = str(first["msg"]).partition(" should ")
    told = f"must {rule}" if should else f"is refused ({first['msg']})"
    return sentence(422, f"{name!r} {told}, {got}")
