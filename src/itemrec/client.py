"""A client of `itemrec serve` that needs nothing but Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from itemrec.errors import ItemrecError
from itemrec.serving.recommendations import Likeness, Reason, Recommendation, Recommendations


class Client:
    """The service at an address; its methods take what `Recommender`'s take.

    Args:
        address: Such as "http://127.0.0.1:8000".
        api_key: A key, if the service needs one.
        timeout: Seconds to wait for an answer.

    Examples:
        >>> Client("http://127.0.0.1:8000/").address
        'http://127.0.0.1:8000'
    """

    def __init__(self, address: str, api_key: str = "", timeout: float = 10.0) -> None:
        self.address, self.api_key, self.timeout = address.rstrip("/"), api_key, timeout

    def recommend(self, user: Any = None, **settings: Any) -> Recommendations:
        """The list for a `user` or a `history`; `run` names the run that answers."""
        return _picks(self._ask("recommend", {"user": user, **_flat(settings)}))

    def recommend_batch(self, **settings: Any) -> list[Recommendations]:
        """A list for each of `users` or `histories`."""
        return [_picks(answer) for answer in self._ask("recommend/batch", _flat(settings))]

    def similar_items(self, item: Any, k: int = 20) -> tuple[Recommendation, ...]:
        """The k items most similar to this one."""
        return _items(self._ask(f"similar?{urlencode({'item': item, 'k': k})}"))

    def send_feedback(self, event: str, items: Sequence[Any], user: Any = None) -> int:
        """Store that items were shown, clicked, liked or disliked; returns their number."""
        stored = self._ask("feedback", {"event": event, "items": list(items), "user": user})
        return int(stored["stored"])

    def about(self) -> dict[str, Any]:
        """The run behind the service."""
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
        except HTTPError as error:  # the service says why in one sentence
            with error:
                text = error.read().decode(errors="replace")
            is_ours = error.headers.get_content_type() == "application/json"
            reason = json.loads(text)["error"] if is_ours else error.reason
            raise ItemrecError(f"{self.address} answers {error.code}: {reason}") from None
        except OSError as error:
            raise ItemrecError(f"{self.address} does not answer: {error}") from error


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request: those of `steering` stand among the others."""
    steering = settings.pop("steering", None)
    return settings | ({} if steering is None else asdict(steering))


def _items(picks: list[dict[str, Any]]) -> tuple[Recommendation, ...]:
    return tuple(Recommendation(**pick | _details(pick)) for pick in picks)


def _details(pick: dict[str, Any]) -> dict[str, Any]:
    reasons = tuple(Reason(**reason) for reason in pick["reasons"])
    like = tuple(Likeness(**known | {"shared": tuple(known["shared"])}) for known in pick["like"])
    return {"reasons": reasons, "like": like}


def _picks(answer: dict[str, Any]) -> Recommendations:
    rest = {"user": answer["user"], "fallback": answer["fallback"]}
    return Recommendations(_items(answer["items"]), unknown=tuple(answer["unknown"]), **rest)
