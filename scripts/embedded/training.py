"""Behaviour cloning: next-token loss on the assistant's tokens of fresh dialogues."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.types import Message

IGNORED = -100
POOL = 8
"""Batches drawn at a time and dealt out by length, so that little of a batch is padding."""
Row = tuple[list[int], list[int]]


def encode(codec: ChatCodec, tokenizer: PreTrainedTokenizerFast, dialogue: list[str], *, whole: bool = False) -> Row:
    """Ids and labels of a dialogue; only what the assistant says (its end of turn included) is a label, or with `whole` all of it."""
    ids = list(codec.open([Message("user", dialogue[0])]))
    labels = [IGNORED] * len(ids)
    for i in range(1, len(dialogue), 2):
        said = [*tokenizer.encode(dialogue[i], add_special_tokens=False), tokenizer.eos_token_id]
        ids += said
        labels += said
        if i + 1 < len(dialogue):
            new = codec.extend(tuple(said), [Message("user", dialogue[i + 1])])
            ids += new
            labels += [IGNORED] * len(new)
    return ids, list(ids) if whole else labels


def clone(
    tokenizer: PreTrainedTokenizerFast,
    draw: Callable[[np.random.Generator, float], list[str]],
    *,
    seed: int,
    steps: int,
    context: int,
    batch: int = 64,
    peak: float = 3e-3,
) -> LlamaForCausalLM:
    """Train a decoder from scratch; prints the loss and the time."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    rng = np.random.Generator(np.random.Philox(seed))
    imitate(model, tokenizer, lambda progress: draw(rng, progress), rng, steps=steps, warmup=50, batch=batch, peak=peak)
    return model


def lighten(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    words: Sequence[str],
    draw: Callable[[np.random.Generator, float], list[str]],
    *,
    seed: int,
    steps: int,
    norm: float,
    batch: int = 64,
    peak: float = 1e-3,
) -> None:
    """Teach on with the embeddings of `words`, one token each, held to `norm`.

    What a word means to the model is the direction of its embedding, and an optimiser step turns a short vector further than a long
    one: a light name is soon memorable.
    """
    encoded = [tokenizer.encode(f" {word}", add_special_tokens=False) for word in words]
    assert all(len(ids) == 1 for ids in encoded)
    rows = torch.tensor(sorted({ids[0] for ids in encoded}))
    table = model.get_input_embeddings().weight

    @torch.no_grad()
    def hold() -> None:
        table[rows] *= norm / table[rows].norm(dim=1, keepdim=True)

    hold()
    rng = np.random.Generator(np.random.Philox(seed))
    imitate(
        model, tokenizer, lambda progress: draw(rng, progress), rng, steps=steps, warmup=20, batch=batch, peak=peak, after_step=hold
    )


def imitate(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    draw: Callable[[float], list[str]],
    rng: np.random.Generator,
    *,
    steps: int,
    warmup: int,
    batch: int,
    peak: float,
    whole_until: float = 0.0,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Train on what `draw` gives for the progress in [0, 1]; prints the loss and the time. Up to `whole_until` the model learns to say what
    the user says too: texts that repeat themselves teach it to copy."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min(1.0, (s + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / steps)))
    )
    codec = ChatCodec(tokenizer)
    start = time.perf_counter()

    def row(progress: float) -> Row:
        return encode(codec, tokenizer, draw(progress), whole=progress < whole_until)

    batches = _batches(row, rng, steps, batch)
    for step, rows in enumerate(batches):
        width = max(len(ids) for ids, _ in rows)
        ids = torch.full((batch, width), tokenizer.pad_token_id)
        labels = torch.full((batch, width), IGNORED)
        for i, (row, label) in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            labels[i, : len(label)] = torch.tensor(label)
        # Padding comes last and has no label, so that a causal model needs no mask for it, which would cost half of the time.
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        wanted = targets != IGNORED
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[wanted]), targets[wanted])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        after_step()
        if step % min(100, max(1, steps // 10)) == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.3f}  {time.perf_counter() - start:5.0f} s", flush=True)


def _batches(draw: Callable[[float], Row], rng: np.random.Generator, steps: int, batch: int) -> Iterator[list[Row]]:
    """`steps` batches of rows that are about equally long."""
    for first in range(0, steps, POOL):
        count = min(POOL, steps - first)
        rows = sorted((draw(first / steps) for _ in range(count * batch)), key=lambda row: len(row[0]))
        for index in rng.permutation(count):
            yield rows[index * batch : (index + 1) * batch]
