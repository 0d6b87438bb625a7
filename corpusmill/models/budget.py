"""A hard budget on money and calls, kept by reserving the worst case before each call."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from corpusmill.errors import BudgetReachedError, ModelError
from corpusmill.models.contracts import Generation, InputT, LanguageModel, OutputT, Task, Usage
from corpusmill.models.tokens import estimate_tokens
from corpusmill.models.wrapping import ModelWrapper


@dataclass(frozen=True)
class Reservation:
    cost: float
    calls: int


class BudgetLike(Protocol):
    """A budget that may be shared between processes (an actor's client has the same two methods)."""

    async def reserve(self, cost: float, calls: int) -> Reservation:
        """Set aside the worst case of one generation. Raises BudgetReachedError where it no longer fits."""
        ...

    async def settle(self, reservation: Reservation, cost: float, calls: int) -> None:
        """Replace the reservation by what was really spent."""
        ...


class Budget:
    """What may be spent in one process. Never exceeded: spent plus reserved stays within the limits.

    A call that fits what is spent but not what is reserved waits until others settle, so that a run does not stop
    before its money is gone.
    """

    def __init__(self, max_cost: float | None = None, max_calls: int | None = None) -> None:
        self.max_cost = max_cost
        self.max_calls = max_calls
        self.cost = 0.0
        self.calls = 0
        self._reserved_cost = 0.0
        self._reserved_calls = 0
        self._changed = asyncio.Condition()

    async def reserve(self, cost: float, calls: int) -> Reservation:
        async with self._changed:
            while True:
                self._refuse_if_spent(cost, calls)
                if self._fits(self.cost + self._reserved_cost + cost, self.calls + self._reserved_calls + calls):
                    self._reserved_cost += cost
                    self._reserved_calls += calls
                    return Reservation(cost, calls)
                await self._changed.wait()

    async def settle(self, reservation: Reservation, cost: float, calls: int) -> None:
        async with self._changed:
            self._reserved_cost -= reservation.cost
            self._reserved_calls -= reservation.calls
            if self._reserved_calls == 0:
                self._reserved_cost = 0.0  # sheds rounding errors
            self.cost += cost
            self.calls += calls
            self._changed.notify_all()

    def _fits(self, cost: float, calls: int) -> bool:
        return (self.max_cost is None or cost <= self.max_cost) and (self.max_calls is None or calls <= self.max_calls)

    def _refuse_if_spent(self, cost: float, calls: int) -> None:
        if self.max_calls is not None and self.calls + calls > self.max_calls:
            raise BudgetReachedError(
                f"run.max_calls is {self.max_calls} and {self.calls} calls are made; the next may need {calls}. "
                "Raise it and run the same command to go on"
            )
        if self.max_cost is not None and self.cost + cost > self.max_cost:
            raise BudgetReachedError(
                f"run.budget is {self.max_cost:g} and {self.cost:.4f} is spent; the next call may cost {cost:.4f}. "
                "Raise it and run the same command to go on"
            )


class BudgetedModel(ModelWrapper):
    """Asks the budget before every call. The worst case of a generation is two calls: the answer and one repair."""

    def __init__(
        self, inner: LanguageModel, budget: BudgetLike, *, price_in: float = 0.0, price_out: float = 0.0
    ) -> None:
        super().__init__(inner)
        self._budget = budget
        self._price_in = price_in / 1e6
        self._price_out = price_out / 1e6

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        reservation = await self._budget.reserve(self._worst_cost(task, inputs), 2)
        spent = Usage(cost=reservation.cost, calls=reservation.calls)  # of a call that was cancelled in flight
        try:
            generation = await self._inner.generate(task, inputs, affinity=affinity)
            spent = generation.usage
            return generation
        except ModelError as error:
            spent = error.usage or Usage()
            raise
        finally:
            await asyncio.shield(self._budget.settle(reservation, spent.cost, spent.calls))

    def _worst_cost(self, task: Task[InputT, OutputT], inputs: InputT) -> float:
        if not (self._price_in or self._price_out):
            return 0.0
        prompt = estimate_tokens(task.prompt.system) + estimate_tokens(task.prompt.user)
        prompt += sum(estimate_tokens(value) for value in task.render(inputs).values())
        out = task.max_output_tokens
        return (2 * prompt + 2 * out + 512) * self._price_in + 2 * out * self._price_out
