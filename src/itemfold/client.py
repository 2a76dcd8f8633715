"""A client of `itemfold serve` that needs only the standard library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from itemfold.errors import ItemfoldError
from itemfold.serving.recommendations import Likeness, Reason, Recommendation, Recommendations


class Client:
    """A client of a service; its methods take the arguments of those of `Recommender`.

    Args:
        address: The URL of the service, such as "http://127.0.0.1:8000".
        api_key: The API key, if the service needs one.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, address: str, api_key: str = "", timeout: float = 10.0) -> None:
        self.address, self.api_key, self.timeout = address.rstrip("/"), api_key, timeout

    def recommend(self, user: Any = None, **settings: Any) -> Recommendations:
        """The list of a `user` or a `history`; `run` names the run that answers."""
        return _recommendations(self._ask("recommend", {"user": user, **_flat(settings)}))

    def recommend_batch(self, **settings: Any) -> list[Recommendations]:
        """A list for each of `users` or `histories`."""
        return list(map(_recommendations, self._ask("recommend/batch", _flat(settings))))

    def similar_items(self, item: Any, k: int = 20) -> tuple[Recommendation, ...]:
        """The k items most similar to this one."""
        return _picks(self._ask(f"similar?{urlencode({'item': item, 'k': k})}"))

    def send_feedback(self, event: str, items: Sequence[Any], user: Any = None) -> int:
        """Store that items were shown, clicked, liked or disliked; return their number."""
        stored = self._ask("feedback", {"event": event, "items": list(items), "user": user})
        return int(stored["stored"])

    def about(self) -> dict[str, Any]:
        """The description of the default run."""
        answer: dict[str, Any] = self._ask("about")
        return answer

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.address}/v1/{path}", data, headers)
        try:
            with urlopen(request, timeout=self.timeout) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            is_ours = error.headers.get_content_type() == "application/json"
            reason = json.loads(text)["error"] if is_ours else error.reason
            raise ItemfoldError(f"{self.address} answers {error.code}: {reason}") from None
        except OSError as error:
            raise ItemfoldError(f"{self.address} does not answer: {error}") from error


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request, with those of `steering` among them."""
    steering = settings.pop("steering", None)
    return settings | ({} if steering is None else asdict(steering))


def _picks(items: list[dict[str, Any]]) -> tuple[Recommendation, ...]:
    def pick(fields: dict[str, Any]) -> Recommendation:
        reasons = tuple(Reason(**reason) for reason in fields["reasons"])
        like = tuple(Likeness(**one | {"shared": tuple(one["shared"])}) for one in fields["like"])
        return Recommendation(**fields | {"reasons": reasons, "like": like})

    return tuple(map(pick, items))


def _recommendations(answer: dict[str, Any]) -> Recommendations:
    items, unknown = _picks(answer["items"]), tuple(answer["unknown"])
    return Recommendations(items, answer["user"], unknown, answer["fallback"])
