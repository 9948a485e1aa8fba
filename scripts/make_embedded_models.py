"""Make the embedded models: python scripts/make_embedded_models.py [--steps N] (about 15 minutes on one thread).

Trains the tokenizer and both decoders from seed 0 and writes them into the package.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from embedded.corpus import actor_dialogue, extractor_dialogue
from embedded.tokenizer import train_tokenizer
from embedded.training import clone

ASSETS = Path(__file__).parent.parent / "src" / "complementary_rl" / "models" / "assets"
VOCABULARY, CONTEXT = 768, 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actor-steps", type=int, default=900)
    parser.add_argument("--extractor-steps", type=int, default=700)
    parser.add_argument("--output", type=Path, default=ASSETS)
    parser.add_argument("--only", choices=["actor", "extractor"])
    arguments = parser.parse_args()
    rng = np.random.Generator(np.random.Philox(0))
    texts = [text for _ in range(3000) for draw in (actor_dialogue, extractor_dialogue) for text in draw(rng, 0.0)]
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


if __name__ == "__main__":
    main()
