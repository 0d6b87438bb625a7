"""One HTTP endpoint that speaks OpenAI's API: key, connection pool, and what each failure means."""

import email.utils
import ipaddress
import math
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from corpusmill.errors import ModelRejectedError, ModelUnavailableError, UsageError

if TYPE_CHECKING:
    import httpx

OPENAI_URL = "https://api.openai.com/v1"
CONNECT_TIMEOUT_S = 10.0
_RETRIED = frozenset({408, 409, 425, 429})


class RefusedRequest(Exception):
    """The endpoint understood the request and refused its form (400, 413, 422): another form may do."""

    def __init__(self, where: str, status: int, told: str) -> None:
        super().__init__(f"{where} refused the request ({status}): {told}")
        self.where = where
        self.told = told

    def rejected(self) -> ModelRejectedError:
        return ModelRejectedError(str(self))


class Endpoint:
    """POSTs JSON to `<base_url><path>`. `what` names the model in messages. Use it in one event loop.

    The key is read once, from the environment variable `key_env`. Raises UsageError where api.openai.com would be
    called without one; elsewhere no key is sent, as local servers need none.
    """

    def __init__(
        self, base_url: str | None, key_env: str | None, timeout_s: float, what: str, connections: int
    ) -> None:
        self._url = (base_url or OPENAI_URL).rstrip("/")
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"base_url {base_url!r} of {what} is not an http(s) URL")
        self._host = parts.hostname
        self._key_env = key_env
        self._key = (os.environ.get(key_env) or "").strip() if key_env else ""
        if not self._key and self._host == "api.openai.com":
            raise UsageError(
                f"{what} at {self._url} needs a key: set the environment variable {key_env or 'named by api_key_env'}"
            )
        self._timeout_s = timeout_s
        self._connections = connections
        self._client: httpx.AsyncClient | None = None
        self.where = f"{what} at {self._url}"

    async def post(self, path: str, body: dict[str, Any], affinity: str | None = None) -> dict[str, Any]:
        """The JSON object of a 200 answer.

        Raises ModelUnavailableError (429, 5xx, time-outs, cut connections, an answer that is not JSON),
        ModelRejectedError (other 4xx), RefusedRequest (400, 413, 422).
        """
        import httpx

        try:
            headers = {"x-session-id": affinity} if affinity else None  # routers in front of replicas may heed it
            response = await self._open().post(self._url + path, json=body, headers=headers)
        except httpx.TimeoutException as error:
            raise ModelUnavailableError(f"{self.where} gave no answer within {self._timeout_s:g} s") from error
        except httpx.TransportError as error:
            raise ModelUnavailableError(f"{self.where} cannot be reached: {error or type(error).__name__}") from error
        if response.status_code != 200:
            raise self._failure(response)
        try:
            answer = response.json()
        except ValueError as error:
            raise ModelUnavailableError(f"{self.where} answered no JSON: {response.text[:120]!r}") from error
        if not isinstance(answer, dict):
            raise ModelUnavailableError(f"{self.where} answered no JSON object: {response.text[:120]!r}")
        return answer

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                headers={"authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
                limits=httpx.Limits(max_connections=self._connections, max_keepalive_connections=self._connections),
                trust_env=not _is_loopback(self._host),  # a proxy must not stand before a local server
            )
        return self._client

    def _failure(self, response: "httpx.Response") -> Exception:
        status, (told, code) = response.status_code, _told(response)
        if status in (401, 403):
            variable = f"the variable {self._key_env}" if self._key_env else "api_key_env (none is set)"
            state = "is refused" if self._key else "is missing"
            return ModelRejectedError(f"{self.where}: the key of {variable} {state} ({status}): {told}")
        if status == 404:
            return ModelRejectedError(f"{self.where} is not there (404); check model and base_url: {told}")
        if status in (400, 413, 422):
            return RefusedRequest(self.where, status, told)
        if status == 429 and code == "insufficient_quota":
            return ModelRejectedError(f"{self.where}: the account's quota is used up (429): {told}")
        if status in _RETRIED or status >= 500:
            message = f"{self.where} is not available ({status}): {told}"
            return ModelUnavailableError(message, retry_after=_retry_after(response.headers.get("retry-after")))
        return ModelRejectedError(f"{self.where} answered {status}: {told}")


def _told(response: "httpx.Response") -> tuple[str, str | None]:
    """(message, code) of an error body in any of the forms that servers use."""
    try:
        body = response.json()
    except ValueError:
        return response.text[:300], None
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or error
        param = f" (param {error['param']})" if error.get("param") else ""
        code = error.get("code")
        return f"{str(message)[:500]}{param}", code if isinstance(code, str) else None
    return str(error)[:500], None


def _retry_after(value: str | None) -> float | None:
    """Seconds from now: the header is a number of seconds or a date."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
