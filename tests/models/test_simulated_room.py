"""The simulated room, in which the models are taught, writes what the real one writes."""

import pytest
from embedded.simulator import MOVES, Room

from complementary_rl.seeds import rng

pytest.importorskip("nle")


def test_the_simulated_room_agrees_with_nethack_move_by_move() -> None:
    from complementary_rl.envs.minihack.dark_rooms import DarkRooms

    suite = DarkRooms(rooms=6, heldout_rooms=0)
    env = suite.make_env()
    outcomes = {"seen": 0, "won": 0}
    try:
        for episode in range(48):
            task = suite.tasks("train")[episode % 6]
            observation, _ = env.reset(task, episode)
            _, x, y = observation.split()
            room = Room(suite.exit(task), (int(x), int(y)))
            random = rng("tests", "simulated-room", episode)
            for _ in range(suite.max_turns):
                way = observation.split("exit ")[-1] if "exit" in observation else None
                action = way if way and random.random() < 0.8 else list(MOVES)[random.integers(8)]
                observation, reward, ended, _, _ = env.step(action)
                room.act(action)
                assert room.observation == observation
                assert room.won == ended == (reward == 1.0)
                outcomes["seen"] += room.seen
                if ended:
                    outcomes["won"] += 1
                    break
    finally:
        env.close()
    assert outcomes["seen"] and outcomes["won"]
