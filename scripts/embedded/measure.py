"""What finished models do, measured through the package's own engine and chat codec in the simulated room."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ModelConfig
from complementary_rl.engines.factory import make_local_engine
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.experience.operations import Parsed, parse_distillation, parse_merge
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Message, TokenIds

from .corpus import FAMILIAR, PROMPTS, answer_dialogue, description, excluded_by, merge_dialogue, negative, positive
from .simulator import MOVES, REGIONS, Room, play, region, step_towards

TURNS = 16
Numbers = dict[str, float]


class Speaker:
    """A model in a folder. A context manager: the engine's thread ends with it."""

    def __init__(self, folder: Path) -> None:
        self._engine = make_local_engine(folder.name, ModelConfig(path=str(folder), device="cpu"))
        self.codec = ChatCodec(self._engine.tokenizer)

    def __enter__(self) -> "Speaker":
        return self

    def __exit__(self, *error: object) -> None:
        self._engine.close()

    def sample(self, prompts: Sequence[TokenIds], identity: str, temperature: float = 1.0) -> list[TokenIds]:
        """One completion per prompt; the same for the same identity."""
        requests = [SampleRequest(f"{identity}/{i}", ids, derive_seed(identity, i)) for i, ids in enumerate(prompts)]
        params = SamplingParams(temperature=temperature, max_new_tokens=64)
        return [generation.token_ids for generation in asyncio.run(self._engine.sample(requests, params))]

    def reply(self, contents: Sequence[str], identity: str, temperature: float = 1.0) -> list[str]:
        """One reply to each user message."""
        prompts = [self.codec.open([Message("user", content)]) for content in contents]
        return [self.codec.decode(ids) for ids in self.sample(prompts, identity, temperature)]


def measure_actor(folder: Path, episodes: int, seed: int) -> Iterator[tuple[str, Numbers]]:
    """Per kind of hint: success in 16 turns at temperature 1, and how usable the actions are."""
    with Speaker(folder) as speaker:
        for kind in ("no hint", "right hint", "wrong hint", "negative hint"):
            yield kind, _play_episodes(speaker, kind, episodes, rng("measure", seed, kind), familiar=False)
        for kind in ("no hint", "wrong hint"):
            yield (
                f"familiar room, {kind}",
                _play_episodes(speaker, kind, episodes, rng("measure", seed, "familiar", kind), familiar=True),
            )


def _hint(kind: str, right: str, random: np.random.Generator) -> list[str]:
    other = [name for name in REGIONS if name != right][random.integers(8)]
    return {"no hint": [], "right hint": [positive(right)], "wrong hint": [positive(other)], "negative hint": [negative(other)]}[
        kind
    ]


def _play_episodes(speaker: Speaker, kind: str, episodes: int, random: np.random.Generator, *, familiar: bool) -> Numbers:
    if familiar:
        tasks = [str(task) for task in random.choice(list(FAMILIAR), size=episodes)]
        rooms = [Room.draw(random, FAMILIAR[task]) for task in tasks]
    else:
        tasks = [description(random) for _ in range(episodes)]
        rooms = [Room.draw(random) for _ in range(episodes)]
    openings = [_opening(room, task, kind, random) for room, task in zip(rooms, tasks, strict=True)]
    contexts = [list(speaker.codec.open([Message("user", opening)])) for opening in openings]
    counts: Counter[str] = Counter()
    active = list(range(episodes))
    for turn in range(TURNS):
        said = speaker.sample([tuple(contexts[i]) for i in active], f"{kind}/{turn}")
        for i, ids in zip(active, said, strict=True):
            room, action = rooms[i], speaker.codec.decode(ids)
            way = step_towards(room.place, room.exit) if room.seen else None
            counts.update(actions=1, known=action in MOVES, shown=way is not None, straight=action == way)
            if action in MOVES:
                room.act(action)
            observation = room.observation if action in MOVES else f"unknown action; {room.observation}"
            new = speaker.codec.extend(ids, [Message("user", observation)])
            contexts[i] += [*ids, *new]
            counts.update(tokens=len(ids) + len(new), winning=(turn + 1) * room.won)
        active = [i for i in active if not rooms[i].won]
    wins = episodes - len(active)
    return {
        "success": wins / episodes,
        "actions per success": counts["winning"] / max(wins, 1),
        "known actions": counts["known"] / counts["actions"],
        "goes to a seen exit": counts["straight"] / max(counts["shown"], 1),
        "tokens per turn": counts["tokens"] / counts["actions"],
    }


def _opening(room: Room, task: str, kind: str, random: np.random.Generator) -> str:
    return PROMPTS.render(
        "actor",
        instructions="",
        description=task,
        experience=_hint(kind, region(*room.exit), random),
        tool=False,
        observation=room.observation,
    )


def measure_extractor(folder: Path, episodes: int, seed: int) -> Iterator[tuple[str, Numbers]]:
    """After a success and a failure, as it samples and in its first choice (greedy); then merges and answers as it samples."""
    with Speaker(folder) as speaker:
        for outcome in ("success", "failure"):
            random = rng("measure", seed, outcome)
            rooms = [played_room(random, outcome == "success") for _ in range(episodes)]
            contents = [distill_prompt(room, description(random)) for room in rooms]
            for how, temperature in (("sampled", 1.0), ("greedy", 0.0)):
                yield f"{outcome}, {how}", _judge(speaker.reply(contents, outcome, temperature), rooms)
        yield "failure with a negative entry shown", _judge_updates(speaker, rooms, random)
        merges = [merge_dialogue(random) for _ in range(episodes)]
        answers = [answer_dialogue(random) for _ in range(episodes)]
        replies = speaker.reply([prompt for prompt, _ in answers], "answer")
        yield "merge", _judge_merges(speaker.reply([prompt for prompt, _ in merges], "merge"), merges)
        yield "answer", {"first entry": _share(reply == best for reply, (_, best) in zip(replies, answers, strict=True))}


def played_room(random: np.random.Generator, won: bool) -> Room:
    """A room after an episode of that outcome, by a hero who heads for the right region half of the time."""
    while True:
        room = Room.draw(random)
        play(room, random, region(*room.exit) if random.random() < 0.5 else None, set(), TURNS)
        if room.won == won:
            return room


def distill_prompt(room: Room, task: str, shown: Sequence[str] = ()) -> str:
    """The prompt for a played room in which entries of these texts were shown."""
    return PROMPTS.render(
        "distill",
        instructions="",
        description=task,
        entries=list(shown),
        turns=room.turns,
        final_observation=room.observation,
        success=room.won,
        reward=float(room.won),
        max_operations=3,
    )


def _judge(replies: Sequence[str], rooms: Sequence[Room]) -> Numbers:
    parsed = [parse_distillation(reply, shown=(), max_operations=3) for reply in replies]
    firsts = [(p.operations[0], region(*room.exit)) for p, room in zip(parsed, rooms, strict=True) if p.operations]
    claims = [(op.text, right) for op, right in firsts if op.text is not None]
    positives = [right for text, right in claims if " not " not in text]
    return {
        "well-formed": _share(map(_clean, parsed)),
        "return": sum(op.kind == "return" for op, _ in firsts) / len(replies),
        "negative claim": (len(claims) - len(positives)) / len(replies),
        "positive claim": len(positives) / len(replies),
        "right among positive": sum(text == positive(right) for text, right in claims) / max(len(positives), 1),
    }


def _clean(parsed: Parsed) -> bool:
    return parsed.parsable and not parsed.problems and not parsed.repaired


def _judge_updates(speaker: Speaker, rooms: Sequence[Room], random: np.random.Generator) -> Numbers:
    """After failures in which a negative claim was shown: how often it is refined, and how often nothing known is lost."""
    names = [str(random.choice([name for name in REGIONS if name != region(*room.exit)])) for room in rooms]
    contents = [distill_prompt(room, description(random), [negative(name)]) for room, name in zip(rooms, names, strict=True)]
    parsed = [parse_distillation(reply, shown=[1], max_operations=3) for reply in speaker.reply(contents, "shown")]
    updates = [
        (operation, name) for p, name in zip(parsed, names, strict=True) for operation in p.operations if operation.kind == "update"
    ]
    return {
        "well-formed": _share(map(_clean, parsed)),
        "update": len(updates) / len(rooms),
        "keeps what was known": _share(name in excluded_by(operation.text or "") for operation, name in updates),
    }


def _judge_merges(replies: Sequence[str], lessons: Sequence[Sequence[str]]) -> Numbers:
    sizes = [len(prompt.splitlines()) - 1 for prompt, _ in lessons]
    parsed = [parse_merge(reply, shown=range(1, size + 1)) for reply, size in zip(replies, sizes, strict=True)]
    return {
        "parsable": _share(p.parsable for p in parsed),
        "without a fault": _share(map(_clean, parsed)),
        "as taught": _share(reply == best for reply, (_, best) in zip(replies, lessons, strict=True)),
        "merges per chunk": sum(op.kind == "merge" for p in parsed for op in p.operations) / len(parsed),
        "drops per chunk": sum(op.kind == "drop" for p in parsed for op in p.operations) / len(parsed),
    }


def _share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / max(len(listed), 1)
