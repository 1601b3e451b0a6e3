"""An image model at one provider, compiled: its steps, its price, its input schema. Only data and functions of
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tollgate.config.image_schema import GIVE_UP
from tollgate.config.model import StepEncoding, StepFraming
from tollgate.config.settings import ConnectionSettings, Timeouts
from tollgate.mapping.hosts import Host
from tollgate.mapping.http_calls import EVERY, CallRead, Values
from tollgate.mapping.images.outcome import Outcome, read_outcome
from tollgate.mapping.images.price import ImagePrice
from tollgate.mapping.images.schema import InputSchema

if TYPE_CHECKING:
    from tollgate.catalog import Listing
    from tollgate.config.model import Model
    from tollgate.mapping.provider import ErrorRules
    from tollgate.wire import GenerationStatus


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a job. `url`, `headers`, `body`, `result` and `when` read the job's values.

    `hosts` is set if the address comes from an answer; then only these hosts are called.
    """

    name: Literal["prepare", "upload", "submit", "poll", "fetch"]
    method: str
    url: CallRead
    result: CallRead
    headers: Mapping[str, CallRead] = field(default_factory=dict)
    body: CallRead | None = None
    encoding: StepEncoding = "json"
    hosts: tuple[Host, ...] | None = None
    framing: StepFraming | None = None
    """The answer is a stream, and `result` reads the list of its events."""
    answers: frozenset[int] = frozenset()
    """Statuses, besides those of success, for which `result` is read."""
    auth: bool = True
    """Whether the provider's `auth` is used for this call: a signed address refuses a second authorisation."""
    when: CallRead | None = None
    """The call is left out for a job where this is false."""


@dataclass(frozen=True, slots=True)
class ImageOffer:
    """One route for an image model. Without `poll` the provider is synchronous: its submit call returns the
    pictures."""

    provider: str
    model: Model
    facts: Mapping[str, Any]
    """What `$model` reads."""
    schema: InputSchema
    price: ImagePrice
    submit: Step
    headers: Callable[[], dict[str, str]]
    """The provider's own headers, with secrets; computed again for every call."""
    variables: Mapping[str, Any]
    """What `$vars` reads."""
    errors: ErrorRules
    timeouts: Timeouts
    poll: Step | None = None
    fetch: Step | None = None
    before: tuple[Step, ...] = ()
    """The calls that upload a picture before `submit`, in order."""
    words: Mapping[str, GenerationStatus] | None = None
    needs_id: bool = True
    """The poll step reads `$job.id`: a submission whose answer has none has failed."""
    every: tuple[float, ...] = EVERY
    """Seconds between the gateway's own polls; the last value repeats."""
    give_up: float = GIVE_UP
    """Seconds after which an unfinished job counts as failed."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The provider's query parameters, for addresses that are not out of an answer."""
    auth: Any = None
    connection: ConnectionSettings = ConnectionSettings()

    @property
    def synchronous(self) -> bool:
        """Whether the submit call waits until the pictures are ready."""
        return self.poll is None

    def step(self, name: str) -> Step | None:
        """The call of that name; None if there is none."""
        steps = (*self.before, self.submit, self.poll, self.fetch)
        return next((step for step in steps if step is not None and step.name == name), None)

    def outcome(self, step: Step, result: object) -> Outcome:
        """What a step's `result` means for its job."""
        fetched = step.name == "fetch"
        ended = fetched or (step.name == "submit" and self.synchronous)
        return read_outcome(result, self.words, final=fetched or self.fetch is None, ended=ended)

    def values(self, **named: Any) -> Values:
        """The values that this offer's templates read; `answer` is `$`."""
        values = {"$model": self.facts, "$vars": self.variables, "$input": None, "$job": {}, "$http": {}}
        for name, value in named.items():
            values["$" if name == "answer" else f"${name}"] = value
        return values


class ImageOffers:
    """All compiled image offers of a configuration. `rendered` caches what the catalog endpoint sends."""

    def __init__(self, offers: Iterable[ImageOffer] = ()) -> None:
        self._offers = {(offer.model.id, offer.provider): offer for offer in offers}
        self.rendered: dict[tuple[str, ...], Listing] = {}

    def offer(self, model_id: str, provider: str) -> ImageOffer | None:
        """The offer of a canonical model at one provider; None if it is not (or no longer) configured, or off."""
        return self._offers.get((model_id, provider))

    def __len__(self) -> int:
        return len(self._offers)

    def __iter__(self) -> Iterator[ImageOffer]:
        return iter(self._offers.values())
