"""The request format, and errors as JSON with one sentence."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

MAX_K = 1000  # items in a list
MAX_IDS = 50_000  # in one request
MAX_SHARES = 100_000  # shares in an explanation, items × history length: about half a second
BAD_BODY = 'the request must be a JSON object such as {"history": ["12"]}'


def _check_id(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("text or a whole number")
    try:
        str(value).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no response could contain
        raise ValueError("text that UTF-8 can hold") from None
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Id = Annotated[str | int, BeforeValidator(_check_id)]
# fail fast: collecting a million errors would take seconds
Ids = Annotated[list[Id], Field(max_length=MAX_IDS, fail_fast=True)]
Texts = Annotated[list[str], Field(max_length=MAX_IDS, fail_fast=True), BeforeValidator(_as_list)]


class RecommendRequest(BaseModel):
    """A known user or a history, and filters on the items."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Id | None = None
    history: Ids | None = None
    k: int = Field(20, ge=1, le=MAX_K)
    exclude_seen: bool = True
    only: Ids | None = None
    without: Ids | None = None
    genre: Texts | None = None
    explain: bool = False


def error_response(status: int, text: str, headers: Any = None) -> JSONResponse:
    """A response with one line of text, whatever the text contains."""
    line = " ".join(text.encode(errors="replace").decode().split())
    return JSONResponse({"error": line}, status, headers)


async def handle_itemrec_error(_: Request, error: Exception) -> JSONResponse:
    """Input that the recommender rejects."""
    return error_response(422, str(error))


async def handle_http_error(_: Request, error: Exception) -> JSONResponse:
    """Unknown paths and methods, and bodies that cannot be parsed at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return error_response(422, BAD_BODY)
    return error_response(error.status_code, error.detail, error.headers)


async def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    """The first error in a request: the name, the rule and the value."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid" or len(where) == 1:
        if "json" not in request.headers.get("content-type", "json"):
            return error_response(422, "the request must be sent as Content-Type: application/json")
        return error_response(422, BAD_BODY)
    name, got = ".".join(where[1:])[:100], f"got {str(first.get('input'))[:100]!r}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(RecommendRequest.model_fields)
        return error_response(422, f"unknown setting {name!r}; known settings: {known}")
    if first["type"] == "missing":
        return error_response(422, f"{name!r} must be given")
    if first["type"] == "value_error":
        return error_response(422, f"{name!r} must be {first['ctx']['error']}, {got}")
    _, should, rule = str(first["msg"]).partition(" should ")
    problem = f"must {rule}" if should else f"is invalid ({first['msg']})"
    return error_response(422, f"{name!r} {problem}, {got}")
