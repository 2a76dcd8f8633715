"""A client of `itemfold serve` that needs only the standard library."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from itemfold.errors import ItemfoldError
from itemfold.serving.recommendations import Likeness, Reason, Recommendation, Recommendations

T = TypeVar("T")


class ServiceError(ItemfoldError):
    """The service answers with an error, with something else than expected, or not at all.

    Attributes:
        status: The HTTP status, such as 404 for an unknown user; None if there is no answer.
        retry_after: Seconds to wait before the next attempt, if the service names them.
    """

    def __init__(
        self, message: str, status: int | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Client:
    """A client of a service; its methods take the arguments of those of `Recommender`.

    All errors of the service and of the network raise `ServiceError`. Redirects are not followed,
    so the key reaches no other host.

    Args:
        address: The URL of the service, such as "http://127.0.0.1:8000".
        api_key: The API key, if the service needs one.
        timeout: Seconds to wait for an answer.

    Raises:
        ItemfoldError: The address is not an http or https URL, or the key cannot be sent.
    """

    def __init__(self, address: str, api_key: str = "", timeout: float = 10.0) -> None:
        if not _is_url(address):
            raise ItemfoldError(
                f"'address' must be a URL such as http://127.0.0.1:8000, got {address!r}"
            )
        if not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ItemfoldError("'api_key' must have printable ASCII characters and no spaces")
        self.address, self.api_key, self.timeout = address.rstrip("/"), api_key, timeout
        self._opener = build_opener(_NoRedirects)

    def recommend(self, user: Any = None, **settings: Any) -> Recommendations:
        """The list of a `user` or a `history`; `run` names the run that answers."""
        return self._ask("recommend", _recommendations, {"user": user, **_flat(settings)})

    def recommend_batch(self, **settings: Any) -> list[Recommendations]:
        """A list for each of `users` or `histories`."""

        def lists(answer: Any) -> list[Recommendations]:
            return [_recommendations(one) for one in answer]

        return self._ask("recommend/batch", lists, _flat(settings))

    def similar_items(self, item: Any, k: int = 20) -> tuple[Recommendation, ...]:
        """The k items most similar to this one."""
        return self._ask(f"similar?{urlencode({'item': item, 'k': k})}", _picks)

    def send_feedback(self, event: str, items: Sequence[Any], user: Any = None) -> int:
        """Store that items were shown, clicked, liked or disliked; return their number."""
        body = {"event": event, "items": list(items), "user": user}
        return self._ask("feedback", lambda answer: int(answer["stored"]), body)

    def about(self) -> dict[str, Any]:
        """The description of the default run."""
        return self._ask("about", dict)

    def _ask(self, path: str, parse: Callable[[Any], T], body: dict[str, Any] | None = None) -> T:
        """The parsed answer to a request."""
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        data = None if body is None else json.dumps(body, default=_plain).encode()
        request = Request(f"{self.address}/v1/{path}", data, headers)
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                content = answer.read()
        except HTTPError as error:
            raise self._error_of(error) from None
        except (OSError, HTTPException) as error:  # no connection, or an answer cut short
            why = str(error) or type(error).__name__
            raise ServiceError(f"{self.address} does not answer: {why}") from error
        try:
            return parse(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{self.address} does not answer like itemfold serve"
            raise ServiceError(f"{problem}: check the address") from error

    def _error_of(self, error: HTTPError) -> ServiceError:
        """The error that a service answers with."""
        reason = error.reason
        try:
            with error:
                content = error.read()
            if error.headers.get_content_type() == "application/json":
                reason = str(json.loads(content)["error"])
        except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
            pass  # an error of a proxy, or one cut short: its status must do
        if 300 <= error.code < 400:
            target = error.headers.get("Location", "")[:200]
            reason = f"it redirects to {target!r}; give the final address"
        wait = error.headers.get("Retry-After", "")
        is_count = wait.isascii() and wait.isdigit() and len(wait) < 10
        text = f"{self.address} answers {error.code}: {reason}"
        return ServiceError(text, error.code, int(wait) if is_count else None)


class _NoRedirects(HTTPRedirectHandler):
    """Raise for a redirect: the request, with its key, is for one host only."""

    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> None:
        """Leave the answer to the handler of errors."""
        return

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _is_url(address: str) -> bool:
    """Whether an address is an http or https URL with a host.

    >>> _is_url("http://127.0.0.1:8000"), _is_url("localhost:8000"), _is_url("http://a b")
    (True, False, False)
    """
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    is_plain = address.isascii() and address.isprintable() and " " not in address
    return parts.scheme in ("http", "https") and has_host and is_plain


def _plain(value: Any) -> Any:
    """A number or an array of numpy, or an iterable, as JSON has it."""
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request, with those of `steering` among them."""
    steering = settings.pop("steering", None)
    return settings | ({} if steering is None else asdict(steering))


def _known(kind: type[T], values: dict[str, Any]) -> T:
    """A dataclass from its fields; those that a newer service adds are left out."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def _picks(items: list[dict[str, Any]]) -> tuple[Recommendation, ...]:
    def pick(entry: dict[str, Any]) -> Recommendation:
        reasons = tuple(_known(Reason, reason) for reason in entry["reasons"])
        like = (one | {"shared": tuple(one["shared"])} for one in entry["like"])
        similar = tuple(_known(Likeness, one) for one in like)
        return _known(Recommendation, entry | {"reasons": reasons, "like": similar})

    return tuple(map(pick, items))


def _recommendations(answer: dict[str, Any]) -> Recommendations:
    items, unknown = _picks(answer["items"]), tuple(answer["unknown"])
    return Recommendations(items, answer["user"], unknown, answer["fallback"])
