"""The suite `webshop`: goals from the original's data or from a generated catalogue, and episodes in the text shop."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.playing import scripted
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.envs.webshop.generated import generate_products
from complementary_rl.envs.webshop.goals import (
    draw,
    human_candidates,
    official_split,
    split_by_product,
    synthetic_candidates,
)
from complementary_rl.envs.webshop.official import load_products
from complementary_rl.envs.webshop.reward import Goal
from complementary_rl.envs.webshop.shoppers import careful_shopper
from complementary_rl.envs.webshop.site import Shop, Visit
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

_RULES = """\
You shop for somebody in a web shop. Find the product that the instruction asks for, choose its options (such as color and size) on its \
page, and buy it. The score says how well what you bought fits: kind of product, attributes, options and price. You have {turns} actions, \
and an episode without purchase scores 0.

Answer with exactly one action:
- search[words]: search for products
- click[text]: click a button, a product (by its code) or an option of the page you see"""

_ACTION = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_LONGEST_ACTION = 1000
_NOT_AN_ACTION = "That is not an action here; nothing happened."


class WebShop(Suite):
    """Suite ``webshop``.

    `data` is a folder with the original's files (`official.load_products`); without it a catalogue is generated from `seed`. The
    catalogue has `items` products. `goals` are "synthetic" (each product with each combination of its options) or "human" (from
    the original's data). With data, held-out tasks are the literature's "test" goals, or with `heldout` "dev" those; of a generated
    catalogue they are about products that no training task is about. At most `train_tasks` and `heldout_tasks` goals are drawn from
    each, those with rare attributes more often. An episode has `max_turns` actions; `show_actions` lists what can be clicked,
    `show_attributes` gives item pages an Attributes button. Raises UserError for options out of range and for damaged data.
    """

    name = "webshop"

    def __init__(
        self,
        data: str = "",
        *,
        goals: str = "synthetic",
        heldout: str = "test",
        items: int = 1000,
        train_tasks: int = 1000,
        heldout_tasks: int = 500,
        max_turns: int = 15,
        show_actions: bool = True,
        show_attributes: bool = False,
        seed: int = 0,
    ) -> None:
        require_at_least(self.name, 1, items=items, train_tasks=train_tasks, max_turns=max_turns)
        require_at_least(self.name, 0, heldout_tasks=heldout_tasks)
        for option, choice, choices in (("goals", goals, ("synthetic", "human")), ("heldout", heldout, ("test", "dev"))):
            if choice not in choices:
                raise UserError(f"{self.name}: {option} is {choice!r}; it must be {' or '.join(map(repr, choices))}")
        if goals == "human" and not data:
            raise UserError(f"{self.name}: human goals come with the original's data only; name its folder as `data`")
        self.max_turns = max_turns
        self.show_actions = show_actions
        self.instructions = _RULES.format(turns=max_turns)
        catalogue = load_products(Path(data).expanduser(), items) if data else generate_products(items, seed)
        candidates = human_candidates(catalogue) if goals == "human" else synthetic_candidates(catalogue)
        split = official_split(candidates) if data else split_by_product(candidates, seed)
        if not split["train"] or (heldout_tasks and not split[heldout]):
            remedy = "use goals = 'synthetic', or the full data" if data else "use more items"
            few = f"{len(candidates)} goals are too few: the usual split leaves none to train or to evaluate on"
            raise UserError(f"{self.name}: {few}; {remedy}")
        training, evaluation = (
            [candidate.goal() for candidate in draw(split[name], count, weighted=goals == "synthetic", identity=(name, seed))]
            for name, count in (("train", train_tasks), (heldout, heldout_tasks))
        )
        # Two products may be asked for in the same words, and such a goal is held out in name only; but the literature's split stays whole.
        known = set() if data else {goal.instruction for goal in training}
        self._goals: dict[Split, dict[str, Goal]] = {
            "train": {goal.id: goal for goal in training},
            "heldout": {goal.id: goal for goal in evaluation if goal.instruction not in known},
        }
        self._tasks: dict[Split, list[Task]] = {
            part: [
                Task(name, self.name, goal.instruction, derive_seed(name), part, scope=self.name) for name, goal in found.items()
            ]
            for part, found in self._goals.items()
        }
        self.shop = Shop(catalogue, show_attributes=show_attributes)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "WebShopEnv":
        return WebShopEnv(self)

    def expert(self, task: Task, seed: int) -> Policy | None:
        """The careful shopper, who reads what an actor reads and is often wrong; None without `show_actions`, which it needs."""
        return scripted(lambda opening: careful_shopper(task.description)) if self.show_actions else None

    def goal(self, task: Task) -> Goal:
        """What a task asks for. Raises UserError if the task is not of this suite."""
        goal = self._goals[task.split].get(task.id)
        if goal is None:
            raise UserError(f"{self.name}: there is no task {task.id!r} in this suite; was it made with other options?")
        return goal


class WebShopEnv:
    """One visit at a time. The same task and actions give the same episode, whatever the seed."""

    def __init__(self, suite: WebShop) -> None:
        self._suite = suite
        self._turns = 0
        self._invalid = 0
        self._visit: Visit
        self._instruction = ""

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        goal = self._suite.goal(task)
        self._visit, self._instruction = Visit(self._suite.shop, goal), goal.instruction
        self._turns = self._invalid = 0
        return self._observation(), {"actions": self._actions()}

    def step(self, action: str) -> StepResult:
        """Do `action`. ``info`` has success (everything fits: score 1), score (0 until something is bought), invalid_actions, actions."""
        self._turns += 1
        understood = self._perform(action)
        self._invalid += not understood
        score = self._visit.score
        info = {"success": score == 1, "score": score or 0.0, "invalid_actions": self._invalid, "actions": self._actions()}
        observation = self._observation() if understood else f"{_NOT_AN_ACTION}\n{self._observation()}"
        return observation, score or 0.0, score is not None, score is None and self._turns >= self._suite.max_turns, info

    def close(self) -> None:
        """Nothing is held."""

    def _perform(self, action: str) -> bool:
        match = _ACTION.fullmatch(action.strip()) if len(action) <= _LONGEST_ACTION else None
        argument = match[2].strip() if match else ""
        if match is None or not argument:
            return False
        if match[1].lower() == "click":
            return self._visit.click(argument)
        self._visit.search(argument)
        return True

    def _observation(self) -> str:
        page = self._visit.page
        if not self._suite.show_actions or self._visit.score is not None:
            return str(page)
        return f"{page}\nAvailable actions: {', '.join(self._clicks('search[words]'))}"

    def _actions(self) -> list[str]:
        return self._clicks(f"search[{self._instruction}]")

    def _clicks(self, search: str) -> list[str]:
        page = self._visit.page
        return [*([search] if page.has_search_bar else []), *(f"click[{text}]" for text in page.links)]
