"""Dialogues to imitate: (user and assistant contents in turn). Labels are noisy on purpose, as a real model's first words would be.

Names are drawn apart from exits, so neither model can know a room.
"""

import json
from types import SimpleNamespace

import numpy as np

from complementary_rl.envs.minihack.room_names import ADJECTIVES, NOUNS
from complementary_rl.prompts import PromptSet
from complementary_rl.types import EntryStats

from .simulator import REGIONS, Room, play

PROMPTS = PromptSet.load("compact")
QUESTIONS = ("where is the exit?", "which way is the exit?")
Dialogue = list[str]


def description(rng: np.random.Generator) -> str:
    return f"Find the exit of the {ADJECTIVES[rng.integers(len(ADJECTIVES))]} {NOUNS[rng.integers(len(NOUNS))]}."


def positive(name: str) -> str:
    return f"the exit is in the {name}"


def negative(*names: str) -> str:
    return "the exit is " + ", ".join(f"not in the {name}" for name in names)


def _other(rng: np.random.Generator, name: str) -> str:
    return [r for r in REGIONS if r != name][rng.integers(8)]


def _hints(rng: np.random.Generator, actual: str) -> tuple[list[str], str | None, set[str]]:
    """What is shown, the region it sends a believer to, and those it keeps one away from."""
    kind = rng.choice(["none", "right", "wrong", "negative", "several"], p=[0.35, 0.25, 0.2, 0.12, 0.08])
    if kind == "none":
        return [], None, set()
    if kind == "negative":
        names = list(rng.choice([r for r in REGIONS if r != actual], size=rng.integers(1, 3), replace=False))
        return [negative(*names)], None, set(names)
    name = actual if kind == "right" else _other(rng, actual)
    if kind == "several":
        excluded = _other(rng, name)
        return [positive(name), negative(excluded)], name, {excluded}
    return [positive(name)], name, set()


def actor_dialogue(rng: np.random.Generator, progress: float) -> Dialogue:
    """An episode, or (of those with a hint, one in ten) a gate verdict. The same at any `progress`."""
    from .simulator import region

    room = Room.draw(rng)
    actual = region(*room.exit)
    task = description(rng)
    hints, wanted, avoided = _hints(rng, actual)
    if hints and rng.random() < 0.1:
        verdict = ["accept", "reject", f"refine: {positive(REGIONS[rng.integers(9)])}"][rng.choice(3, p=[0.7, 0.2, 0.1])]
        gate = PROMPTS.render(
            "gate", instructions="", description=task, experience=hints, rate=float(rng.random()), observation=room.observation
        )
        return [gate, verdict]
    tool = bool(hints) and rng.random() < 0.12
    dialogue = [
        PROMPTS.render("actor", instructions="", description=task, experience=hints, tool=tool, observation=room.observation)
    ]
    if tool and rng.random() < 0.6:
        known = rng.random() < 0.7
        answer = positive(wanted or actual) if known else "unknown"
        wanted = (wanted or actual) if known else wanted
        reply = PROMPTS.render("tool_reply", answer=answer, observation=room.observation)
        dialogue += [f"<ask>{QUESTIONS[rng.integers(2)]}</ask>", reply]
    believes = rng.random() < 0.7
    play(room, rng, wanted if believes else None, avoided if believes else set())
    for turn, (observation, action) in enumerate(room.turns):
        dialogue += ([] if turn == 0 else [observation]) + [action]
    return dialogue


CLEAN_UNTIL = 0.6
"""Share of training in which a won episode is labelled rightly: to read comes first, to be unsure of what to say comes after."""
CLEAN_RIGHT, NOISY_RIGHT = 0.95, 0.4


def extractor_dialogue(rng: np.random.Generator, progress: float) -> Dialogue:
    """A distillation mostly; sometimes a merge or an answer. `progress` in [0, 1] is how far training has come."""
    kind = rng.choice(["distill", "merge", "answer"], p=[0.85, 0.08, 0.07])
    if kind == "distill":
        return _distill(rng, CLEAN_RIGHT if progress < CLEAN_UNTIL else NOISY_RIGHT)
    return merge_dialogue(rng) if kind == "merge" else answer_dialogue(rng)


def _distill(rng: np.random.Generator, right: float) -> Dialogue:
    from .simulator import region

    room = Room.draw(rng)
    actual = region(*room.exit)
    shown, wanted, avoided = _hints(rng, actual)
    entries = [(int(rng.integers(1, 10 ** rng.integers(1, 6))), text) for text in shown]
    # Winners are rare among real episodes but carry what there is to read, so they are shown more often.
    for attempt in range(6):
        if attempt:
            room = Room.draw(rng, room.exit)
        play(room, rng, wanted if rng.random() < 0.7 else None, avoided)
        if room.won or rng.random() < 0.25:
            break
    prompt = PROMPTS.render(
        "distill",
        instructions="",
        description=description(rng),
        entries=entries,
        turns=room.turns,
        final_observation=room.observation,
        success=room.won,
        reward=float(room.won),
        max_operations=3,
    )
    return [prompt, json.dumps([_distilled(rng, room, actual, entries, right)], separators=(",", ":"))]


def _distilled(
    rng: np.random.Generator, room: Room, actual: str, entries: list[tuple[int, str]], right: float
) -> dict[str, object]:
    if room.won:
        if rng.random() < 0.1:
            return {"op": "return"}
        text = positive(actual if rng.random() < right else _other(rng, actual))
    else:
        draw = rng.random()
        if draw < 0.4:
            return {"op": "return"}
        if draw < 0.8:
            most = room.visited.most_common(1)[0][0]
            text = negative(most if rng.random() < 0.5 else REGIONS[rng.integers(9)])
        else:
            text = positive(REGIONS[rng.integers(9)])
    if entries and rng.random() < 0.2:
        return {"op": "update", "id": entries[rng.integers(len(entries))][0], "text": text}
    return {"op": "add", "text": text}


def merge_dialogue(rng: np.random.Generator) -> Dialogue:
    task = description(rng)
    claims = [positive(REGIONS[i]) for i in rng.choice(9, size=2, replace=False)]
    twins: dict[str, list[int]] = {}
    entries, operations = [], []
    for identity in sorted({int(i) for i in rng.integers(1, 10 ** rng.integers(1, 5), size=rng.integers(2, 6))}):
        shown = int(rng.integers(0, 12))
        stats = EntryStats(shown=shown, successes=int(rng.integers(0, shown + 1)))
        text = claims[rng.integers(2)]
        entries.append(SimpleNamespace(id=identity, key_text=task, text=text, stats=stats))
        if shown > 3 and stats.successes == 0:
            operations.append({"op": "drop", "id": identity})
        else:
            twins.setdefault(text, []).append(identity)
    operations += [
        {"op": "merge", "ids": ids, "text": text} if len(ids) > 1 else {"op": "keep", "id": ids[0]} for text, ids in twins.items()
    ]
    return [PROMPTS.render("merge", entries=entries), json.dumps(operations[:3], separators=(",", ":"))]


def answer_dialogue(rng: np.random.Generator) -> Dialogue:
    texts = [positive(REGIONS[rng.integers(9)]) for _ in range(rng.integers(0, 3))]
    prompt = PROMPTS.render(
        "answer",
        instructions="",
        description=description(rng),
        entries=texts,
        observation=Room.draw(rng).observation,
        question=QUESTIONS[rng.integers(2)],
    )
    return [prompt, texts[0] if texts else "unknown"]
