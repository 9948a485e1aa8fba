"""Make a small actor for tasks that have an expert, by imitation: python scripts/warm_start.py alfworld --output models/alfworld

It plays the experts on training tasks and keeps the episodes they solved; gives the embedded actor a vocabulary for their texts and a
longer context; teaches it on with these episodes and with its own lessons in dark rooms, so that it can still read a hint; and writes a
Hugging Face folder for `actor.model.path`. Like the embedded actor it reads the prompts named `compact`. The expert of the dark rooms is
no teacher: it would give their exits away.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).parent))

from embedded.corpus import actor_dialogue
from embedded.tokenizer import train_tokenizer
from embedded.training import encode, imitate

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.envs.names import ADJECTIVES, NOUNS
from complementary_rl.envs.playing import Player, expert_player, play_episode
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite
from complementary_rl.models.names import resolve
from complementary_rl.prompts import PromptSet
from complementary_rl.seeds import derive_seed

Dialogue = list[str]
ROOMS = 2000
"""Dialogues in dark rooms that the tokenizer sees."""
WHOLE_UNTIL = 0.5
"""Share of the steps in which observations are learnt too: pages repeat names, and to act is mostly to copy one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", help="registered suites that have an expert")
    parser.add_argument("--options", type=json.loads, default={}, help='of the suites, as JSON: {"webshop": {"items": 200}}')
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32, help="episodes of a step")
    parser.add_argument("--lessons", type=int, default=2000, help="episodes of each expert, on training tasks in turn")
    parser.add_argument("--vocabulary", type=int, default=1536)
    parser.add_argument("--context", type=int, default=4096, help="tokens; longer episodes are left out")
    parser.add_argument(
        "--observation-tokens", type=int, default=4096, help="longer ones lose their middle, as by actor.max_observation_tokens"
    )
    parser.add_argument("--lr", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.Generator(np.random.Philox(arguments.seed))
    lessons = {"dark rooms": [actor_dialogue(random, 0.0) for _ in range(ROOMS)]}
    for name in arguments.suites:
        suite = make_suite(name, **arguments.options.get(name, {}))
        lessons[name] = expert_lessons(suite, arguments.lessons, arguments.seed)
    texts = [text for dialogues in lessons.values() for dialogue in dialogues for text in dialogue]
    texts += [f" {word}" for word in (*ADJECTIVES, *NOUNS) for _ in range(100)]  # rare ones are one token too
    tokenizer = train_tokenizer(texts, arguments.vocabulary, arguments.context)
    for name in arguments.suites:
        lessons[name] = [shortened(dialogue, tokenizer, arguments.observation_tokens) for dialogue in lessons[name]]
    chosen, shares = fitting(lessons, tokenizer, arguments.context)

    def draw(progress: float) -> Dialogue:
        index = random.choice(len(chosen), p=shares)
        return chosen[index][random.integers(len(chosen[index]))] if index else actor_dialogue(random, progress)

    model = widened("embedded:actor", tokenizer, arguments.context)
    settings = {"steps": arguments.steps, "warmup": 20, "batch": arguments.batch, "peak": arguments.lr}
    torch.manual_seed(arguments.seed)
    imitate(model, tokenizer, draw, random, **settings, whole_until=WHOLE_UNTIL)
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)


def expert_lessons(suite: Suite, episodes: int, seed: int) -> list[Dialogue]:
    """What the expert was told and did in each of its episodes that it solved: user and assistant in turn, an action last."""
    prompts, env, tasks, lessons = PromptSet.load("compact"), suite.make_env(), suite.tasks("train"), []
    for index in range(episodes):
        task, episode_seed = tasks[index % len(tasks)], derive_seed("warm-start", seed, index)
        observations: list[str] = []
        actions: list[str] = []
        player = _noting(expert_player(suite, task, episode_seed), actions)
        if play_episode(suite, env, task, episode_seed, player, observations.append).success:
            observations[0] = prompts.render(
                "actor",
                instructions=suite.instructions_for(task),
                description=task.description,
                experience=[],
                tool=False,
                observation=observations[0],
            )
            # The last observation tells of the end; nobody answers it.
            lessons.append([text for pair in zip(observations[:-1], actions, strict=True) for text in pair])
    env.close()
    return lessons


def _noting(player: Player, actions: list[str]) -> Player:
    def act(observation: str, offered: object) -> str | None:
        action = player(observation, ())
        actions.extend([] if action is None else [action.strip()])
        return action

    return act


def shortened(dialogue: Dialogue, tokenizer: PreTrainedTokenizerFast, limit: int) -> Dialogue:
    """The dialogue with what was told cut to `limit` tokens each."""
    codec = ChatCodec(tokenizer)
    return [codec.shortened(text, limit) if index % 2 == 0 else text for index, text in enumerate(dialogue)]


def fitting(
    lessons: dict[str, list[Dialogue]], tokenizer: PreTrainedTokenizerFast, context: int
) -> tuple[list[list[Dialogue]], list[float]]:
    """The lessons of each source that fit the context, and how often to draw from it for as many tokens of each."""
    codec = ChatCodec(tokenizer)
    chosen, lengths = [], []
    for name, dialogues in lessons.items():
        sizes = [len(encode(codec, tokenizer, dialogue)[0]) for dialogue in dialogues]
        kept = [(dialogue, size) for dialogue, size in zip(dialogues, sizes, strict=True) if size <= context]
        if not kept:
            sys.exit(
                f"{name}: none of {len(dialogues)} solved episodes fits {context} tokens; raise --context or choose easier options"
            )
        chosen.append([dialogue for dialogue, _ in kept])
        lengths.append(float(np.mean([size for _, size in kept])))
        print(f"{name}: {len(kept)} lessons of {lengths[-1]:.0f} tokens; {len(dialogues) - len(kept)} are too long", flush=True)
    rates = [1 / length for length in lengths]
    return chosen, [rate / sum(rates) for rate in rates]


def widened(name: str, tokenizer: PreTrainedTokenizerFast, context: int) -> LlamaForCausalLM:
    """A model with the vocabulary of `tokenizer`: a token that the old one writes in several pieces begins as their mean."""
    folder = resolve(name)
    model, old = AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), AutoTokenizer.from_pretrained(folder)
    table, known = model.get_input_embeddings().weight.detach().clone(), old.get_vocab()
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.max_position_embeddings = context
    with torch.no_grad():
        for token, index in tokenizer.get_vocab().items():
            pieces = [known[token]] if token in known else old.encode(tokenizer.decode([index]), add_special_tokens=False)
            model.get_input_embeddings().weight[index] = table[pieces].mean(dim=0)
    return model


if __name__ == "__main__":
    main()
