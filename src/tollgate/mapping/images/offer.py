"""An image model at one provider, compiled: its steps, its price, its input schema. Pure data with callables in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tollgate.config.model import StepEncoding, StepFraming, Timeouts
from tollgate.mapping.images.hosts import Host
from tollgate.mapping.images.outcome import Outcome, read_outcome
from tollgate.mapping.images.price import ImagePrice, JobRead, Values
from tollgate.mapping.images.schema import InputSchema

if TYPE_CHECKING:
    from tollgate.catalog import Listing
    from tollgate.config.model import Model
    from tollgate.mapping.provider import ErrorRules
    from tollgate.wire import GenerationStatus


EVERY = (1.0, 1.0, 2.0, 3.0, 5.0)
GIVE_UP = 600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a job. `url`, `headers`, `body`, `result` and `when` read the job's values.

    `hosts` is declared where the address comes out of an answer; then nothing else is called.
    """

    name: Literal["prepare", "upload", "submit", "poll", "fetch"]
    method: str
    url: JobRead
    result: JobRead
    headers: Mapping[str, JobRead] = field(default_factory=dict)
    body: JobRead | None = None
    encoding: StepEncoding = "json"
    hosts: tuple[Host, ...] | None = None
    framing: StepFraming | None = None
    """The answer is a stream, and `result` reads the list of its events."""
    answers: frozenset[int] = frozenset()
    """Statuses beside those of a success that `result` reads."""
    auth: bool = True
    """Whether the provider's `auth` authorises this call: a signed address refuses a second authorisation."""
    when: JobRead | None = None
    """A job for which this does not hold has no such call."""


@dataclass(frozen=True, slots=True)
class ImageOffer:
    """One route for an image model. Without `poll` the provider is synchronous:
    its submit call returns the pictures."""

    provider: str
    model: Model
    facts: Mapping[str, Any]
    """What `$model` reads."""
    schema: InputSchema
    price: ImagePrice
    submit: Step
    headers: Callable[[], dict[str, str]]
    """The provider's own headers, secrets in them; made anew for every call."""
    variables: Mapping[str, Any]
    """What `$vars` reads."""
    errors: ErrorRules
    timeouts: Timeouts
    poll: Step | None = None
    fetch: Step | None = None
    before: tuple[Step, ...] = ()
    """The calls that bring a picture there before `submit`, in their order."""
    words: Mapping[str, GenerationStatus] | None = None
    needs_id: bool = True
    """The poll step reads `$job.id`: a submission whose answer holds none has failed."""
    every: tuple[float, ...] = EVERY
    """Seconds between polls made on our own account; the last repeats."""
    give_up: float = GIVE_UP
    """Seconds after which a job that has not finished is failed."""
    auth: Any = None
    proxy: str | None = None
    verify: bool = True
    ca_file: str | None = None

    @property
    def synchronous(self) -> bool:
        """Whether the submit call is held until the pictures are there."""
        return self.poll is None

    def step(self, name: str) -> Step | None:
        """A call by its name; None where there is none of that name."""
        steps = (*self.before, self.submit, self.poll, self.fetch)
        return next((step for step in steps if step is not None and step.name == name), None)

    def outcome(self, step: Step, result: object) -> Outcome:
        """What a step's `result` means for its job."""
        fetched = step.name == "fetch"
        ended = fetched or (step.name == "submit" and self.synchronous)
        return read_outcome(result, self.words, final=fetched or self.fetch is None, ended=ended)

    def values(self, **named: Any) -> Values:
        """What this offer's templates read; `answer` is `$`."""
        values = {"$model": self.facts, "$vars": self.variables, "$input": None, "$job": {}, "$http": {}}
        for name, value in named.items():
            values["$" if name == "answer" else f"${name}"] = value
        return values


class ImageOffers:
    """All compiled image offers of a configuration. `rendered` is a memo of what the catalog's endpoint sends."""

    def __init__(self, offers: Iterable[ImageOffer] = ()) -> None:
        self._offers = {(offer.model.id, offer.provider): offer for offer in offers}
        self.rendered: dict[tuple[str, ...], Listing] = {}

    def offer(self, model_id: str, provider: str) -> ImageOffer | None:
        """The offer of a canonical model at one provider, when it is (still) configured and on."""
        return self._offers.get((model_id, provider))

    def __len__(self) -> int:
        return len(self._offers)

    def __iter__(self) -> Iterator[ImageOffer]:
        return iter(self._offers.values())
