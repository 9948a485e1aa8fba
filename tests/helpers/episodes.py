"""Episodes built by hand: every token id says what it is, so a test can read a sequence."""

from complementary_rl.types import Condition, Generation, Task, TokenIds, Trajectory, Turn

TASK = Task(id="room-1", env="rooms", description="Find the exit.", seed=1)
FREE_PROMPT = (100, 101)
GUIDED_PROMPT = (100, 666, 101)


def make_generation(token_ids: TokenIds, *, id: str = "g", version: int = 0, temperature: float = 1.0) -> Generation:
    """A generation whose log-probs are −token/10, so that they can be told apart; its prompt is the single token 9."""
    logprobs = tuple(-token / 10 for token in token_ids)
    return Generation(id, "actor", version, (9,), token_ids, logprobs, "stop", temperature)


def make_turn(kind: str, new_ids: TokenIds, token_ids: TokenIds) -> Turn:
    assert kind in ("act", "ask")
    return Turn("ask" if kind == "ask" else "act", "somewhere", new_ids, make_generation(token_ids), "north")


def make_trajectory(
    *turns: Turn,
    id: str = "t",
    guided: bool = False,
    success: bool = False,
    reward: float | None = None,
    entries: tuple[int, ...] = (),
    answers: tuple[str, ...] = (),
) -> Trajectory:
    """A finished episode; the reward is 1 or 0 by success unless given."""
    return Trajectory(
        id=id,
        task=TASK,
        condition=Condition.GUIDED if guided or entries else Condition.FREE,
        step=0,
        group=0,
        member=0,
        seed=0,
        entry_ids=entries,
        answer_ids=answers,
        turns=turns,
        free_prompt_ids=FREE_PROMPT,
        reward=float(success) if reward is None else reward,
        success=success,
        n_actions=len(turns),
        stop_reason="terminated",
    )
