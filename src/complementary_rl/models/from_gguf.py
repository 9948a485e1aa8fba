"""GGUF file of a Llama with the SmolLM tokenizer → Hugging Face folder, exact: quantised weights become the float32 they stand for.

transformers reads such files too, but refuses to save what it read, and loses the tokenizer's digit splitting and context length.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gguf import GGUFReader

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3


def convert(source: Path, target: Path) -> None:
    """Write config, weights, tokenizer and chat template of `source` into the existing folder `target`.

    Raises ValueError for a file that is damaged, or of another architecture or tokenizer than this reads.
    """
    from gguf import GGUFReader

    reader = GGUFReader(source)
    kinds = [_field(reader, "general.architecture"), _field(reader, "tokenizer.ggml.pre")]
    if kinds != ["llama", "smollm"]:
        raise ValueError(f"{source} is of the kind {kinds}; only Llama models with the SmolLM tokenizer can be converted")
    _write_model(reader, target)
    _write_tokenizer(reader, target)


def _write_model(reader: "GGUFReader", target: Path) -> None:
    from gguf import dequantize
    from safetensors.numpy import save_file
    from transformers import GenerationConfig, LlamaConfig

    heads, kv_heads = int(_field(reader, "llama.attention.head_count")), int(_field(reader, "llama.attention.head_count_kv"))
    weights = {}
    for tensor in reader.tensors:
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        part = tensor.name.split(".")[-2]
        if part in ("attn_q", "attn_k"):
            values = _unpermuted(values, heads if part == "attn_q" else kv_heads)
        weights[_weight_name(tensor.name)] = values
    stop = int(_field(reader, "tokenizer.ggml.eos_token_id"))
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=int(_field(reader, "llama.vocab_size")),
        hidden_size=int(_field(reader, "llama.embedding_length")),
        intermediate_size=int(_field(reader, "llama.feed_forward_length")),
        num_hidden_layers=int(_field(reader, "llama.block_count")),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=int(_field(reader, "llama.context_length")),
        rms_norm_eps=float(_field(reader, "llama.attention.layer_norm_rms_epsilon")),
        rope_parameters={"rope_type": "default", "rope_theta": float(_field(reader, "llama.rope.freq_base"))},
        tie_word_embeddings="lm_head.weight" not in weights,
        bos_token_id=int(_field(reader, "tokenizer.ggml.bos_token_id")),
        eos_token_id=stop,
        pad_token_id=int(_field(reader, "tokenizer.ggml.padding_token_id")),
        dtype="float32",
    ).save_pretrained(target)
    GenerationConfig(eos_token_id=stop).save_pretrained(target)  # type: ignore[no-untyped-call]
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(reader: "GGUFReader", target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in _field(reader, "tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    # Digits one by one, then GPT-2's words: what "smollm" stands for in a GGUF file.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = _field(reader, "tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    named = {f"{role}_token": tokens[_field(reader, f"tokenizer.ggml.{key}_token_id")] for role, key in _ROLES.items()}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=int(_field(reader, "llama.context_length")), **named
    )
    tokenizer.chat_template = _field(reader, "tokenizer.chat_template")
    tokenizer.save_pretrained(target)


_ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Token roles: transformers' name → GGUF's."""


def _unpermuted(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """[heads · dim, hidden] from interleaved rotary pairs, as GGUF has them, to halves, as transformers has them."""
    pairs = weights.reshape(heads, weights.shape[0] // heads // 2, 2, weights.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weights.shape))


def _weight_name(name: str) -> str:
    match name.split("."):
        case ["token_embd", _]:
            return "model.embed_tokens.weight"
        case ["output_norm", _]:
            return "model.norm.weight"
        case ["output", _]:
            return "lm_head.weight"
        case ["blk", layer, part, _] if part in _LAYER_NAMES:
            return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
    raise ValueError(f"tensor {name} has no place in a Llama model")


def _field(reader: "GGUFReader", key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"the file lacks {key}")
    return field.contents()
