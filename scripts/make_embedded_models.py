"""Make the embedded models, and measure them: python scripts/make_embedded_models.py

Trains the tokenizer and both decoders from seed 0, writes them into the package and prints what they do; the actor takes half an hour, its
names five minutes more, the extractor ten minutes, on a core each. With --measure it trains nothing and measures what is there.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parent))

from embedded.corpus import CLEAN_UNTIL, FAMILIAR_ADJECTIVES, actor_dialogue, extractor_dialogue
from embedded.measure import measure_actor, measure_extractor
from embedded.tokenizer import train_tokenizer
from embedded.training import clone, lighten

from complementary_rl.envs.names import ADJECTIVES, NOUNS

ASSETS = Path(__file__).parent.parent / "src" / "complementary_rl" / "models" / "assets"
VOCABULARY, CONTEXT = 768, 1024
NAME_NORM = 0.25
"""Norm of the embedding of a word of a name; other words have about 1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actor-steps", type=int, default=1400)
    parser.add_argument("--names-steps", type=int, default=250)
    parser.add_argument("--extractor-steps", type=int, default=900)
    parser.add_argument("--output", type=Path, default=ASSETS)
    parser.add_argument("--only", choices=["actor", "names", "extractor"], help="names: lighten those of the actor in --output")
    parser.add_argument("--measure", action="store_true", help="train nothing, measure the models in --output")
    parser.add_argument("--episodes", type=int, default=512, help="episodes per measured line")
    arguments = parser.parse_args()
    if not arguments.measure:
        make(arguments)
    for name, measure in (("actor", measure_actor), ("extractor", measure_extractor)):
        if arguments.only in (None, name) or (arguments.only, name) == ("names", "actor"):
            for what, numbers in measure(arguments.output / name, arguments.episodes, seed=0):
                print(f"{name}, {what}: " + ", ".join(f"{label} {value:.3f}" for label, value in numbers.items()), flush=True)


def make(arguments: argparse.Namespace) -> None:
    """Train what `--only` names, or both, and write the folders."""
    rng = np.random.Generator(np.random.Philox(0))
    texts = [text for _ in range(3000) for draw in (actor_dialogue, extractor_dialogue) for text in draw(rng, 0.0)]
    texts += [f" {word}" for word in (*ADJECTIVES, *NOUNS, *FAMILIAR_ADJECTIVES) for _ in range(100)]  # rare ones are one token too
    tokenizer = train_tokenizer(texts, VOCABULARY, CONTEXT)
    for name, draw, steps, seed in (
        ("actor", actor_dialogue, arguments.actor_steps, 1),
        ("extractor", extractor_dialogue, arguments.extractor_steps, 2),
    ):
        if arguments.only in (None, name):
            print(f"{name}: {steps} steps")
            model = clone(tokenizer, draw, seed=seed, steps=steps, context=CONTEXT)
            model.save_pretrained(arguments.output / name)
            tokenizer.save_pretrained(arguments.output / name)
    if arguments.only in (None, "actor", "names"):
        lighten_names(arguments.output / "actor", arguments.names_steps)


def lighten_names(folder: Path, steps: int) -> None:
    """Teach the actor in `folder` on, with light names and the lessons of the later phase."""
    print(f"names: {steps} steps")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), AutoTokenizer.from_pretrained(folder)
    words = (*ADJECTIVES, *NOUNS, *FAMILIAR_ADJECTIVES)

    def draw(rng: np.random.Generator, progress: float) -> list[str]:
        return actor_dialogue(rng, CLEAN_UNTIL + (1 - CLEAN_UNTIL) * progress)

    lighten(model, tokenizer, words, draw, seed=7, steps=steps, norm=NAME_NORM)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
