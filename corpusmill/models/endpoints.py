"""Several endpoints of one model: each gets its share of the documents, and one that fails rests for a while."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from corpusmill.errors import ModelUnavailableError
from corpusmill.hashing import content_id
from corpusmill.models.structured import Completion, CompletionBackend, CompletionRequest

REST_S = 30.0  # of an endpoint that failed; the first request after it tries again


@dataclass
class Place:
    """An endpoint with its name and share. `rests_until` is a time of the clock."""

    name: str
    weight: float
    backend: CompletionBackend
    rests_until: float = 0.0


class SpreadCompletions:
    """A CompletionBackend over several (models.structured). Belongs to one event loop.

    Weighted rendezvous hashing: a document's requests go to one endpoint, for its prefix cache, and each endpoint has
    documents in proportion to its weight. Where it rests, each of its documents goes to that document's next one, and
    all others stay where they are. A request without affinity is spread by itself.
    """

    def __init__(self, places: Sequence[Place], clock: Callable[[], float] = time.monotonic) -> None:
        if not places:
            raise ValueError("at least one endpoint is needed")
        self._places = list(places)
        self._clock = clock
        self._numbers = count()

    async def complete(self, request: CompletionRequest) -> Completion:
        """By the request's endpoints in turn, resting ones last. Raises the last one's ModelUnavailableError once all
        have failed, other errors at once: a wrong key or model is not mended by asking elsewhere."""
        key = request.affinity or f"request {next(self._numbers)}"
        now = self._clock()
        order = sorted(self.ranked(key), key=lambda place: place.rests_until > now)  # stable
        for at, place in enumerate(order, 1):
            try:
                completion = await place.backend.complete(request)
            except ModelUnavailableError as error:
                place.rests_until = self._clock() + max(REST_S, error.retry_after or 0.0)
                if at == len(order):
                    raise
            else:
                place.rests_until = 0.0
                return completion
        raise AssertionError("unreachable: there is at least one endpoint")

    def ranked(self, key: str) -> list[Place]:
        """All endpoints, the one that `key` belongs to first."""
        return sorted(self._places, key=lambda place: _score(key, place), reverse=True)

    async def aclose(self) -> None:
        for place in self._places:
            await place.backend.aclose()


def _score(key: str, place: Place) -> float:
    """The highest of such scores falls to a place with a probability in proportion to its weight."""
    drawn = (int(content_id("endpoint", key, place.name)[:13], 16) + 0.5) / 16**13  # in (0, 1)
    return -place.weight / math.log(drawn)
