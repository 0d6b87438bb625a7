"""What a pool's client makes of a lost replica, a full queue, a time-out; the handle is a stand-in."""

import asyncio

import pytest
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from corpusmill.errors import ModelRejectedError, ModelUnavailableError
from corpusmill.models.structured import CompletionRequest, Message
from corpusmill.models.vllm_calls import PoolAnswer, PoolCall
from corpusmill.settings import ModelSettings
from ray_actors.language_pool import PooledCompletions
from tests.unit.models.tasks import Names

REQUEST = CompletionRequest((Message("user", "x"),), Names, 64, affinity="text 1")


class Response:
    def __init__(self, result: object, delay: float) -> None:
        self.result, self.delay, self.cancelled = result, delay, False

    def __await__(self):  # type: ignore[no-untyped-def]
        yield from asyncio.sleep(self.delay).__await__()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """A Serve handle that answers with what it is told."""

    def __init__(self, result: object, delay: float = 0.0) -> None:
        self.response = Response(result, delay)
        self.sessions: list[str] = []

    def options(self, *, method_name: str, session_id: str) -> "Handle":
        assert method_name == "complete"
        self.sessions.append(session_id)
        return self

    def remote(self, call: PoolCall) -> Response:
        return self.response


def ask(handle: Handle | None, timeout_s: float = 5.0) -> object:
    own = ModelSettings(backend="vllm", model="m", timeout_s=timeout_s)
    return asyncio.run(PooledCompletions(own, handle).complete(REQUEST))


def test_a_documents_calls_are_one_session() -> None:
    handle = Handle(PoolAnswer("{}", "stop", 1, 1, 0, "r"))
    ask(handle)
    assert handle.sessions == ["text 1"]


@pytest.mark.parametrize("error", [ActorDiedError(), BackPressureError(9, 8)])
def test_what_may_pass_is_worth_a_retry(error: Exception) -> None:
    with pytest.raises(ModelUnavailableError, match="'m'") as raised:
        ask(Handle(error))
    assert raised.value.usage is None


def test_a_pool_that_has_failed_is_not_asked_again() -> None:
    with pytest.raises(ModelRejectedError):
        ask(Handle(DeploymentUnavailableError("LanguageReplica")))  # type: ignore[arg-type]


def test_a_late_answer_frees_its_place() -> None:
    handle = Handle(PoolAnswer("{}", "stop", 1, 1, 0, "r"), delay=30)
    with pytest.raises(ModelUnavailableError, match=r"within 0\.05 s"):
        ask(handle, 0.05)
    assert handle.response.cancelled


def test_a_role_that_no_step_names_has_no_pool() -> None:
    with pytest.raises(ModelRejectedError, match="role"):
        ask(None)
