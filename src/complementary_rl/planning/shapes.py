"""The transformers configuration of a model without its weights: from its folder, or, for the models that shipped configs name, from here.

Values are those of the config.json that each model is published with.
"""

from typing import Any

from complementary_rl.models.names import resolve

_QWEN25 = {"model_type": "qwen2", "max_position_embeddings": 32_768}
_QWEN3 = {"model_type": "qwen3", "head_dim": 128, "vocab_size": 151_936}
_SMALL = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True}
_4B_2507 = {
    **_QWEN3,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "max_position_embeddings": 262_144,
}

KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-3B-Instruct": {
        **_QWEN25,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        **_QWEN25,
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-0.6B": {**_QWEN3, **_SMALL, "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40_960},
    "Qwen/Qwen3-1.7B": {**_QWEN3, **_SMALL, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40_960},
    "Qwen/Qwen3-4B-Instruct-2507": _4B_2507,
    "Qwen/Qwen3-4B-Thinking-2507": _4B_2507,
    "Qwen/Qwen3-Embedding-0.6B": {
        **_QWEN3,
        **_SMALL,
        "vocab_size": 151_669,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "max_position_embeddings": 32_768,
    },
}
"""Hub name → configuration."""


def model_configuration(path: str) -> Any:
    """The transformers configuration of `path`, a name of `KNOWN` or anything that `model.path` may be. Raises UserError when there is none
    that can be read."""
    if path in KNOWN:
        from transformers import AutoConfig

        settings = dict(KNOWN[path])
        return AutoConfig.for_model(settings.pop("model_type"), **settings)
    from complementary_rl.engines.local.loading import read_config

    return read_config(resolve(path))
