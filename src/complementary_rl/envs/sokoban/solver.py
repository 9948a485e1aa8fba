"""The shortest solution of a small room, by A* over single steps."""

import heapq
from collections import deque

from complementary_rl.envs.sokoban.board import Boxes, Room

_State = tuple[int, Boxes]


def solve(room: Room, at_most: int) -> list[str] | None:
    """The fewest actions that put every box on a target; None when it takes more than `at_most`, or cannot be done."""
    pushes = _push_distances(room)

    def still_to_push(boxes: Boxes) -> int:
        # Each box needs at least the pushes to its nearest target, and a push is an action: never more than the truth.
        return sum(pushes.get(box, at_most + 1) for box in boxes)

    start = (room.player, room.boxes)
    came_from: dict[_State, tuple[_State, str] | None] = {start: None}
    taken = {start: 0}
    # The counter breaks ties, so that sets are never compared.
    frontier = [(still_to_push(room.boxes), 0, start)]
    count = 0
    directions = room.directions()
    while frontier:
        estimate, _, state = heapq.heappop(frontier)
        player, boxes = state
        actions = taken[state]
        if estimate > at_most:
            return None
        if boxes == room.targets:
            return _path(came_from, state)
        for word, step in directions.items():
            after = room.move(player, boxes, step)
            if after is not None and actions + 1 < taken.get(after, at_most + 1):
                taken[after] = actions + 1
                came_from[after] = (state, word)
                count += 1
                heapq.heappush(frontier, (actions + 1 + still_to_push(after[1]), count, after))
    return None


def _push_distances(room: Room) -> dict[int, int]:
    """Pushes that bring a lone box from a cell to the nearest target; a cell that is missing is one it cannot leave for a target."""
    distances = dict.fromkeys(room.targets, 0)
    queue = deque(sorted(room.targets))
    while queue:
        cell = queue.popleft()
        for step in room.directions().values():
            # Pulling backwards: the box came from `before`, pushed by someone one cell further back.
            before, behind = cell - step, cell - 2 * step
            if before in room.floor and behind in room.floor and before not in distances:
                distances[before] = distances[cell] + 1
                queue.append(before)
    return distances


def _path(came_from: dict[_State, tuple[_State, str] | None], state: _State) -> list[str]:
    words = []
    while (link := came_from[state]) is not None:
        state, word = link
        words.append(word)
    return words[::-1]
