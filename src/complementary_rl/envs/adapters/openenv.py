"""An OpenEnv server as a suite: ``suite = "openenv"``, ``options = { url = "http://localhost:8000", description = "..." }``.

Tried with openenv 0.10.0 (BSD-3-Clause). An environment is a session: the server's ``max_concurrent_envs`` limits how many play at once.
"""

import json
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

from complementary_rl.envs.adapters.seeded import SeededSuite
from complementary_rl.errors import UserError

try:
    from openenv import GenericEnvClient
except ImportError as error:
    raise UserError(f"the suite openenv needs OpenEnv ({error}); run: pip install 'complementary-rl[openenv]'") from error


class OpenEnv(SeededSuite):
    """The environment that an OpenEnv server offers at `url`; tasks are seeds given to its reset, see `SeededSuite`.

    An action is JSON by the server's schema; where that wants a single field, its text alone will do. An observation is told as the text
    of its only field of text, else as JSON. Rewards are the server's; success is an end (`done`) at which they add up to `solved_at`.
    No answer may take more than `timeout` seconds. Raises UserError when none comes from `url`.
    """

    needs = "openenv (BSD-3-Clause)"

    def __init__(
        self,
        url: str,
        description: str,
        instructions: str = "",
        *,
        solved_at: float = 1.0,
        timeout: float = 20.0,
        train_tasks: int = 256,
        heldout_tasks: int = 64,
        max_turns: int = 30,
        fresh: bool = False,
        seed: int = 0,
    ) -> None:
        self._fields = (schema := _action_schema(url, timeout)).get("required", [])
        super().__init__(
            f"openenv/{url}",
            description,
            lambda: _Session(url, timeout),
            instructions or ("" if len(self._fields) == 1 else f"Answer with a JSON object of this schema: {json.dumps(schema)}"),
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh=fresh,
            seed=seed,
            solved_at=solved_at,
            tell=self._tell,
            parse=self._parse,
        )

    def _parse(self, text: str) -> dict[str, Any] | None:
        with suppress(ValueError, RecursionError):
            if isinstance(action := json.loads(text), dict):
                return action
        return {self._fields[0]: text} if len(self._fields) == 1 else None

    def _tell(self, observation: dict[str, Any]) -> str:
        fields = {name: value for name, value in observation.items() if name not in ("done", "reward", "metadata")}
        texts = [value for value in fields.values() if isinstance(value, str)]
        return texts[0] if len(texts) == 1 else json.dumps(fields, ensure_ascii=False)


def _action_schema(url: str, timeout: float) -> dict[str, Any]:
    """What the server takes as an action. Raises UserError."""
    try:
        with urlopen(f"{url.rstrip('/')}/schema", timeout=timeout) as answer:
            return dict(json.load(answer)["action"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"no OpenEnv server answers at {url} ({error}); start it, or give the right url in env.options") from error


class _Session:
    """One session with the server, begun at the first reset and again after the connection was lost."""

    def __init__(self, url: str, timeout: float) -> None:
        self._client = GenericEnvClient(base_url=url, connect_timeout_s=timeout, message_timeout_s=timeout).sync()

    def reset(self, *, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._client.reset(seed=seed).observation, {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        try:
            result = self._client.step(action)
        except RuntimeError as error:
            if "VALIDATION_ERROR" not in str(error):
                raise
            return {"message": "That is no action here."}, 0.0, False, False, {}
        return result.observation, float(result.reward or 0.0), bool(result.done), False, {}

    def close(self) -> None:
        self._client.close()
