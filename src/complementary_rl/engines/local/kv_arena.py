"""Keys and values of many sequences in one tensor per layer, so that rows of unequal length are batched without re-padding.

layer i:  K, V  [slots, heads, capacity, dim]      slot s, position p  ←  the p-th token of the sequence living in slot s

A forward pass writes its new keys at its rows' own positions and attends to a view of the rows. What stands behind a row's
length is stale but finite, and always masked.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

_MIN_SLOTS = 8
_MIN_CAPACITY = 64


@dataclass(slots=True)
class _Layer:
    keys: Tensor
    values: Tensor


class KVArena:
    """Grows geometrically in slots and in capacity (tokens per slot); layers appear when the model first writes to them."""

    def __init__(self) -> None:
        self.slots = 0
        self.capacity = 0
        self._layers: dict[int, _Layer] = {}

    def clear(self) -> None:
        """Give the memory back."""
        self.slots = self.capacity = 0
        self._layers.clear()

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for `slots` rows of `capacity` tokens."""
        if slots <= self.slots and capacity <= self.capacity:
            return
        self.slots = _grown(self.slots, slots, _MIN_SLOTS)
        self.capacity = _grown(self.capacity, capacity, _MIN_CAPACITY)
        for layer in self._layers.values():
            layer.keys = self._resized(layer.keys)
            layer.values = self._resized(layer.values)

    def copy(self, sources: list[int], targets: list[int], length: int) -> None:
        """Overwrite the first `length` positions of the target slots with those of the sources; a slot may be in both."""
        for layer in self._layers.values():
            for tensor in (layer.keys, layer.values):
                tensor[targets, :, :length] = tensor[sources, :, :length]

    def layer(self, index: int, keys: Tensor, values: Tensor) -> _Layer:
        """The tensors of layer `index`, made to fit `keys` and `values` [B, heads, Q, dim] when they are its first."""
        if index not in self._layers:
            self._layers[index] = _Layer(self._zeros(keys), self._zeros(values))
        return self._layers[index]

    def _zeros(self, like: Tensor) -> Tensor:
        # Zeros, not empty: masked positions are multiplied by 0, which a stray NaN would survive.
        return like.new_zeros(self.slots, like.shape[1], self.capacity, like.shape[3])

    def _resized(self, tensor: Tensor) -> Tensor:
        resized = self._zeros(tensor)
        resized[: tensor.shape[0], :, : tensor.shape[2]] = tensor
        return resized


class ArenaCache(Cache):
    """The cache object of one forward pass over the rows `slots` (ascending range, or any list) at `positions` [B, Q].

    `length` is how many positions the pass can see. `fresh` says that no row has anything cached: the chunk then attends to itself.
    """

    def __init__(self, arena: KVArena, slots: range | list[int], positions: Tensor, *, length: int, fresh: bool) -> None:
        super().__init__(layers=[])
        self.length = length
        self.fresh = fresh
        self._arena = arena
        self._slots = slots
        self._positions = positions
        self._places: dict[int, Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Store new keys and values [B, heads, Q, dim]; returns those the pass attends to, [B, heads, L, dim]."""
        layer = self._arena.layer(layer_idx, key_states, value_states)
        places = self._flat_places(key_states.shape[1])
        for stored, new in ((layer.keys, key_states), (layer.values, value_states)):
            width = stored.shape[-1]
            stored.view(-1, width).index_copy_(0, places, new.reshape(-1, width))
        if self.fresh:
            return key_states, value_states
        return self._visible(layer.keys), self._visible(layer.values)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Asked for only when the model builds the mask itself, which it does for fresh rows alone."""
        assert self.fresh
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """See `get_seq_length`."""
        assert self.fresh
        return query_length, 0

    def _visible(self, stored: Tensor) -> Tensor:
        seen = stored[:, :, : self.length]
        if isinstance(self._slots, range):
            return seen[self._slots.start : self._slots.stop]
        return seen[self._slots]

    def _flat_places(self, heads: int) -> Tensor:
        """Row numbers of [slots · heads · capacity, dim] that the new tokens take, [B · heads · Q]; the same for all layers."""
        if heads not in self._places:
            device = self._positions.device
            slots = torch.as_tensor(list(self._slots), device=device)[:, None] * heads + torch.arange(heads, device=device)
            self._places[heads] = (slots[:, :, None] * self._arena.capacity + self._positions[:, None, :]).reshape(-1)
        return self._places[heads]


def _grown(current: int, needed: int, minimum: int) -> int:
    return current if needed <= current else max(minimum, 2 * current, needed)
