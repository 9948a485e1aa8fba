"""What is best to do on a lake whose map is known."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

# So close to 1 that only ways of the same promise are told apart, and the shorter is taken.
_PATIENCE = 0.9999

Transitions = Mapping[int, Mapping[int, list[tuple[float, int, float, bool]]]]


def best_actions(transitions: Transitions, turns: int) -> NDArray[np.int64]:
    """(turns, states): the action most likely to reach the goal with n + 1 actions left, by backward induction.

    `transitions` are Gymnasium's toy-text ``P``: state → action → [(probability, next state, reward, terminated)].
    """
    states, actions = len(transitions), len(transitions[0])
    move, reward = np.zeros((states, actions, states)), np.zeros((states, actions))
    for state, by_action in transitions.items():
        for action, outcomes in by_action.items():
            for probability, to, gain, ends in outcomes:
                reward[state, action] += probability * gain
                move[state, action, to] += probability * (not ends)
    value, best = np.zeros(states), np.zeros((turns, states), dtype=np.int64)
    for left in range(turns):
        promise = reward + _PATIENCE * move @ value
        best[left], value = promise.argmax(axis=1), promise.max(axis=1)
    return best
