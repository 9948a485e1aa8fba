"""One vLLM server over HTTP. Its paths are those of vLLM 0.32 (`vllm serve --help`, section API server).

A refusal of what was asked (HTTP 4xx) is a ValueError and not asked again. Everything else is a ServerFault: the server is gone, too slow,
ill, or answers something that is no answer; the same request may be sent again, it carries its seed.
"""

import http.client
import json
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from complementary_rl.errors import UserError

_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
"""Refusals of the moment, not of the request."""
_KEY = "VLLM_API_KEY"
"""Environment variable of the key, as on the server's side."""

_BORN = "process_start_time_seconds"
"""Metric that every Prometheus client exports on Linux."""


class ServerFault(Exception):
    """A server did not do what it should have been able to do."""


class UnknownModelError(ValueError):
    """The server has no model or adapter of that name, as after a restart."""


class Server:
    """The server at `url`, such as ``http://host:8000``. Threads may share it. Raises UserError for a URL that is none."""

    def __init__(self, url: str, *, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"vllm.urls: {url!r} is no address of a server; write it as http://host:8000")
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._secure, self._host, self._port, self._root = (
            parts.scheme == "https",
            parts.hostname,
            parts.port,
            parts.path.rstrip("/"),
        )

    def get(self, path: str) -> Any:
        """The JSON at `path`, None if empty."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send `body` as JSON; what comes back, None if empty."""
        return self._call("POST", path, {} if body is None else body)

    def born(self) -> float | None:
        """When its process began, by its metrics; None where they do not say."""
        lines = self._fetch("GET", "/metrics", None).splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(_BORN)), None)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        text = self._fetch(method, path, body)
        try:
            return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
        except ValueError as error:
            raise ServerFault(f"{self.url}{path} answered with broken JSON ({error})") from error

    def _fetch(self, method: str, path: str, body: Mapping[str, Any] | None) -> str:
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=self._timeout)
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(_KEY):
            headers["Authorization"] = f"Bearer {key}"
        try:
            connection.request(method, self._root + path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read().decode("utf-8", errors="replace")
        except TimeoutError as error:
            raise ServerFault(f"{self.url}{path} did not answer within {self._timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise ServerFault(f"{self.url}{path} cannot be reached ({type(error).__name__}: {error})") from error
        finally:
            connection.close()
        if status >= HTTPStatus.BAD_REQUEST:
            self._refuse(path, status, text)
        return text

    def _refuse(self, path: str, status: int, text: str) -> None:
        message = f"{self.url}{path} refused with HTTP {status}: {_reason(text)}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING:
            raise ServerFault(message)
        if status == HTTPStatus.NOT_FOUND:
            raise UnknownModelError(message)
        raise ValueError(message)


def _reason(text: str) -> str:
    """The message in an error's body, at most a few lines of it."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        error = body.get("error", body)
        text = str(error.get("message", error.get("detail", error)) if isinstance(error, dict) else error)
    return text[:500] or "no reason given"
