"""Slots and tensors move together: whatever is claimed, moved and freed, a session's keys stay its own."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.engines.local.kv_arena import ArenaCache, KVArena
from complementary_rl.engines.local.slots import Slot, SlotTable

Step = tuple[str, int, list[int]]
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "front", "free"]), st.integers(0, 9), st.lists(st.integers(0, 9), min_size=1, unique=True)),
    max_size=25,
)


def write(table: SlotTable, slot: Slot, token: int) -> None:
    """Append one token whose key is its own number and whose value is the negative."""
    table.arena.reserve(0, len(slot.cached) + 1)
    positions = torch.tensor([[len(slot.cached)]])
    cache = ArenaCache(table.arena, [slot.index], positions, length=len(slot.cached) + 1, fresh=False)
    states = torch.full((1, 2, 1, 3), float(token))
    cache.update(states, -states, layer_idx=0)
    slot.cached.append(token)


def keys_of(table: SlotTable, slot: Slot) -> list[float]:
    layer = table.arena.layer(0, torch.empty(1, 2, 1, 3), torch.empty(1, 2, 1, 3))
    stored = layer.keys[slot.index, :, : len(slot.cached)]
    assert torch.equal(stored, -layer.values[slot.index, :, : len(slot.cached)])
    assert torch.equal(stored, stored[:1, :, :1].expand_as(stored))
    return stored[0, :, 0].tolist()


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_sessions_keys_stay_its_own(steps: list[Step]) -> None:
    table = SlotTable(KVArena())
    live: dict[int, Slot] = {}
    token = 0
    for kind, session, group in steps:
        if kind == "write":
            live[session] = table.claim(f"s{session}")
            for _ in group:
                token += 1
                write(table, live[session], token)
        elif kind == "free":
            table.free_sessions([f"s{session}"])
            live.pop(session, None)
        elif chosen := [live[member] for member in group if member in live]:
            batch = table.bring_to_front(chosen)
            assert [slot.index for slot in batch] == list(range(len(chosen)))
            assert set(map(id, batch)) == set(map(id, chosen))
        assert len({slot.index for slot in live.values()}) == len(live)
        for slot in live.values():
            assert keys_of(table, slot) == slot.cached


def test_the_lowest_free_slot_is_taken() -> None:
    table = SlotTable(KVArena())
    slots = [table.claim(f"s{i}") for i in range(4)]
    table.free(slots[2])
    table.free(slots[1])
    assert [table.claim(None).index for _ in range(3)] == [1, 2, 4]
    assert table.claim("s3") is slots[3]


def test_growth_keeps_what_is_stored() -> None:
    table = SlotTable(KVArena())
    first = table.claim("a")
    for token in range(1, 200):
        write(table, first, token)
    for i in range(30):
        table.claim(f"b{i}")
    assert keys_of(table, first) == list(range(1, 200))
