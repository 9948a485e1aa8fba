"""A Hugging Face causal LM seen as two functions: token ids → hidden states, hidden states → logits.

Splitting them lets the sampler take the logits of each row's own last token and the trainer those of trained tokens only, whatever
the vocabulary's size.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from complementary_rl.errors import UserError

if TYPE_CHECKING:
    from complementary_rl.engines.local.kv_arena import ArenaCache

_PROBE_TOKENS = 4
_SUPPORTED_LAYERS = {"full_attention", "sliding_attention"}


class Decoder:
    """Wraps `model` (a PreTrainedModel with a language head, whose layers are full or sliding-window attention), without dropout.

    Raises UserError for architectures with other layers, or whose logits are not the head's output up to the scalings and the
    soft cap known here: such a model would be trained on wrong log-probs.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.config = model.config
        self.vocab_size = int(model.get_input_embeddings().weight.shape[0])
        self._body = model.base_model
        self._head = model.get_output_embeddings()
        self._window: int = getattr(self.config, "sliding_window", None) or 0
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._layer_types = self._attention_kinds()
        self._check_logits()

    @property
    def layers(self) -> list[Any]:
        """The modules that the model is a stack of."""
        kinds = set(getattr(self.model, "_no_split_modules", None) or ())
        return [module for module in self.model.modules() if type(module).__name__ in kinds]

    def hidden(self, input_ids: Tensor) -> Tensor:
        """[B, T] ids, right-padded with anything → [B, T, H]: causal attention keeps real tokens from seeing the padding."""
        hidden: Tensor = self._body(input_ids=input_ids, use_cache=False).last_hidden_state
        return hidden

    def hidden_cached(self, input_ids: Tensor, positions: Tensor, cache: "ArenaCache") -> Tensor:
        """[B, Q] ids standing at `positions` [B, Q] behind what `cache` holds of their rows → [B, Q, H]; the cache is extended."""
        output = self._body(
            input_ids=input_ids,
            attention_mask=self._masks(positions, cache),
            position_ids=positions,
            cache=cache,
            use_cache=True,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., H] → [..., V] in the model's dtype."""
        logits: Tensor = self._head(hidden)
        if (scale := getattr(self.model, "logit_scale", None)) is not None:
            logits = logits * scale
        if (divisor := getattr(self.config, "logits_scaling", None)) is not None:
            logits = logits / divisor
        if (cap := getattr(self.config, "final_logit_softcapping", None)) is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits

    def _masks(self, positions: Tensor, cache: "ArenaCache") -> Tensor | dict[str, Tensor] | None:
        """Additive masks [B, 1, Q, L]: a query sees its own row up to its own position."""
        if cache.fresh and self._layer_types == {"full_attention"}:
            return None  # plain causal attention, which has the faster kernel
        keys = torch.arange(cache.length, device=positions.device)
        queries = positions[:, None, :, None]
        allowed = keys <= queries
        masks = {"full_attention": self._additive(allowed)}
        if "sliding_attention" in self._layer_types:
            masks["sliding_attention"] = self._additive(allowed & (keys > queries - self._window))
        return masks if len(self._layer_types) > 1 else masks[next(iter(self._layer_types))]

    def _additive(self, allowed: Tensor) -> Tensor:
        return torch.where(allowed, 0.0, float("-inf")).to(self.dtype)

    def _attention_kinds(self) -> set[str]:
        listed = getattr(self.config, "layer_types", None)
        kinds = set(listed) if listed else {"sliding_attention" if self._window else "full_attention"}
        if kinds - _SUPPORTED_LAYERS or getattr(self.model, "_is_stateful", False):
            raise UserError(
                f"{self.config.model_type} models have layers without a plain key/value cache ({', '.join(sorted(kinds))}); "
                "choose a decoder with full or sliding-window attention, such as Llama, Qwen3, SmolLM2 or Gemma 3"
            )
        return kinds

    @torch.no_grad()
    def _check_logits(self) -> None:
        ids = torch.arange(min(_PROBE_TOKENS, self.vocab_size), device=self.device).unsqueeze(0)
        expected = self.model(input_ids=ids, use_cache=False).logits
        if not torch.isfinite(expected).all():
            raise UserError(
                f"this {self.config.model_type} model's logits are not finite in {self.dtype}: its weights are damaged, or it needs "
                "another model.dtype (bfloat16 or float32 instead of float16)"
            )
        if self._head is None or not torch.allclose(self.logits(self.hidden(ids)), expected, rtol=1e-2, atol=1e-3):
            raise UserError(
                f"{self.config.model_type} models change their logits in a way the local engine does not know; choose another model"
            )
