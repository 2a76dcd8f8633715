"""Schemas of requests and responses, the source of the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from itemfold.errors import ItemfoldError
from itemfold.reranking.steering import BY_MODEL, Steering
from itemfold.serving.recommendations import Recommendations

MAX_K = 1000  # items in a list
MAX_IDS = 50_000  # ids in a request
MAX_SHARES = 1_000_000  # computed shares: items × history length
MAX_REASONS = 5_000  # listed shares in an answer: about 400 KB
MAX_USERS = 1000  # users in a batch
MAX_BATCH_ITEMS = 50_000  # items in the answer to a batch: about 5 MB
MAX_STEERED = 200  # items in a re-ranked list: they are chosen one after another
MAX_CAPS = 8  # columns in 'max_per'
MAX_ID = 512  # characters of an id or a genre
MAX_RUN_NAME = 200  # characters of the name of a run or a column


def _check_id(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("text or a whole number")
    text = str(value)
    if len(text) > MAX_ID:
        raise ValueError(f"at most {MAX_ID} characters long")
    if "\0" in text:
        raise ValueError("text without the character 0")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no response could contain
        raise ValueError("text that UTF-8 can hold") from None
    return value


def _check_stored_id(value: Any) -> Any:
    """Raise for a blank id; stored ids are stripped of surrounding spaces."""
    value = _check_id(value)
    if isinstance(value, str) and not (value := value.strip()):
        raise ValueError("text that is not blank")
    return value


def _check_length(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_ID:
        raise ValueError(f"at most {MAX_ID} characters long")
    return value


def _whole(value: Any) -> Any:
    """Convert a whole float to an integer, since JSON does not distinguish 64.0 and 64."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Id = Annotated[str | int, BeforeValidator(_check_id)]
# fail fast: collecting a million errors would take seconds
IdList = Annotated[list[Id], Field(max_length=MAX_IDS, fail_fast=True)]
StoredId = Annotated[str | int, BeforeValidator(_check_stored_id)]
Genres = Annotated[
    list[Annotated[str, BeforeValidator(_check_length)]],
    Field(max_length=MAX_IDS, fail_fast=True),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]
RunName = Annotated[str, Field(max_length=MAX_RUN_NAME)]
ColumnName = Annotated[str, Field(min_length=1, max_length=MAX_RUN_NAME)]
Strength = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=MAX_K), BeforeValidator(_whole)]

# --- requests ------------------------------------------------------------------------------------


class ListRequest(BaseModel):
    """Length and filters of a list, and the fields of `Steering`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: Count = Field(20, description="Number of items.")
    exclude_seen: bool | None = Field(
        None,
        description="Leave out the items of the history; default: yes, unless the run was trained "
        "with repeats.",
    )
    only: IdList | None = Field(None, description="Ids to choose from.")
    without: IdList | None = Field(None, description="Ids to leave out.")
    genre: Genres | None = Field(None, description="Keep items with at least one of these genres.")
    run: RunName | None = Field(None, description="Name of the run that answers.")
    diversity: Strength = Field(0.0, description="Avoid items similar to others in the list.")
    diversity_by: ColumnName = Field(
        BY_MODEL, description="Measure of similarity: model, or a column such as genre."
    )
    popularity_discount: Strength = Field(0.0, description="Avoid popular items.")
    long_tail: Strength = Field(0.0, description="Least fraction of items from the long tail.")
    freshness: Strength = Field(0.0, description="Prefer newer items.")
    max_per: Annotated[dict[ColumnName, Count], Field(max_length=MAX_CAPS)] = Field(
        {}, description='Most items with the same value in a column, such as {"genre": 3}.'
    )

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `Recommender.recommend`."""
        names = {field.name for field in fields(Steering)}
        steering = Steering(**{name: getattr(self, name) for name in names})
        if not steering.is_plain and self.k > MAX_STEERED:
            raise ItemfoldError(
                f"'k' must be at most {MAX_STEERED} for a re-ranked list, got {self.k}"
            )
        others = {"run", "visitor", "users", "histories", *names}
        return {**self.model_dump(exclude=others), "steering": steering}


class RecommendRequest(ListRequest):
    """A known user or a history, and filters on the items."""

    example: ClassVar[dict[str, Any]] = {"history": ["ITEM_ID"], "k": 5}
    model_config = ConfigDict(json_schema_extra={"examples": [example]})

    user: Id | None = Field(None, description="Id of a user of the training data.")
    history: IdList | None = Field(None, description="Ids of items, for any user.")
    weights: Annotated[list[float], Field(max_length=MAX_IDS, fail_fast=True)] | None = Field(
        None, description="Weights of the history items; only their ratios matter."
    )
    dislikes: IdList | None = Field(
        None, description="Ids of disliked items; similar items score lower."
    )
    visitor: Id | None = Field(
        None, description="Identifies a new user, for the traffic split only."
    )
    explain: bool = Field(False, description="List the share of each history item in each score.")
    reasons: Count | None = Field(
        None, description="Number of shares to list per item, the largest; default: all."
    )


class BatchRequest(ListRequest):
    """Several known users or several histories, with the same filters."""

    example: ClassVar[dict[str, Any]] = {"histories": [["ITEM_ID"], ["ITEM_ID", "ITEM_ID"]]}
    model_config = ConfigDict(json_schema_extra={"examples": [example]})

    users: Annotated[list[Id], Field(max_length=MAX_USERS, fail_fast=True)] | None = None
    histories: Annotated[list[IdList], Field(max_length=MAX_USERS, fail_fast=True)] | None = None


class FeedbackRequest(BaseModel):
    """An event of a user with recommended items."""

    example: ClassVar[dict[str, Any]] = {"event": "liked", "items": ["ITEM_ID"], "user": "USER_ID"}
    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [example]}
    )

    event: Literal["shown", "clicked", "liked", "disliked"]
    items: Annotated[list[StoredId], Field(min_length=1, max_length=MAX_K, fail_fast=True)]
    user: StoredId | None = Field(None, description="Id of a known user, or any other name.")
    run: RunName | None = Field(None, description="The run that recommended the items.")


# --- answers -------------------------------------------------------------------------------------


class Error(BaseModel):
    """The reason of an error, in one sentence."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "give either 'user' or 'history'"}]}
    )

    error: str


class Status(BaseModel):
    """The state of the service."""

    status: Literal["ok"] = "ok"


class Stored(BaseModel):
    """Number of stored events."""

    stored: int


class Item(BaseModel):
    """An item of the catalogue."""

    item: str | int
    title: str
    genres: str
    image: str = ""
    is_new: bool = Field(False, description="Whether it has no interactions.")


@dataclass(frozen=True)
class Answer(Recommendations):
    """The list of one user, best first, and the run that produced it."""

    run: str = ""
    run_fingerprint: str = ""


class About(BaseModel):
    """A run of the service, and the names of all runs."""

    run: str
    run_fingerprint: str
    since: str
    model: str
    data: str
    fingerprint: str = Field(description="A hash of the data.")
    protocol: str
    users: int
    items: int
    new_items: int = Field(description="Number of items without interactions.")
    explains: bool
    titled: bool
    genres: list[str]
    test: dict[str, float]
    runs: list[str]
    split: dict[str, float]
    feedback: bool
    image_hosts: list[str] = Field(description="Origins from which the page may load images.")
