"""Tiny random models and a tiny tokenizer: words of the dark rooms, letters for the rest, the compact chat template."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from complementary_rl.engines.local.engine import LocalEngine

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
WORDS = ["north", "south", "east", "west", "at", "exit", "the", "is", "in", "Find", "of", "hint"]
VOCAB_SIZE = 128
FAMILIES = ("llama", "qwen3", "gemma3")
STOP_ID = SPECIAL.index("<|end|>")


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Any ASCII text round-trips; special tokens are `SPECIAL`, end of turn is `<|end|>`."""
    pieces = [*SPECIAL, *WORDS, *map(chr, range(32, 127))]
    core = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(dict.fromkeys(pieces))}, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(sorted(WORDS, key=len, reverse=True)) + "|."), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=SPECIAL[0], eos_token=SPECIAL[1], additional_special_tokens=SPECIAL[2:]
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_model(
    family: str = "llama", *, seed: int = 0, scale: float = 0.2, context: int = 256, vocab_size: int = VOCAB_SIZE
) -> Any:
    """A random two-layer decoder with grouped heads; `scale` spreads its logits. "gemma3" has a window of 8 and a soft cap."""
    shape: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "initializer_range": scale,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": STOP_ID,
    }
    torch.manual_seed(seed)
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=8, tie_word_embeddings=True)).eval()
    if family == "gemma3":
        layers = ["sliding_attention", "full_attention"]
        config = Gemma3TextConfig(**shape, head_dim=8, sliding_window=8, layer_types=layers, final_logit_softcapping=5.0)
        return Gemma3ForCausalLM(config).eval()
    return LlamaForCausalLM(LlamaConfig(**shape)).eval()


def tiny_engine(family: str = "llama", *, name: str = "actor", keep_reference: bool = False, **model: Any) -> LocalEngine:
    """A local engine around a tiny model."""
    weights = tiny_model(family, **model)
    return LocalEngine(
        name,
        weights,
        tiny_tokenizer(),
        stop_ids=frozenset({STOP_ID}),
        max_context=weights.config.max_position_embeddings,
        keep_reference=keep_reference,
    )


def save_tiny_model(directory: Path, family: str = "llama", *, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """A Hugging Face folder with a tiny model and its tokenizer."""
    tiny_model(family).save_pretrained(directory)
    (tokenizer or tiny_tokenizer()).save_pretrained(directory)
    return directory
