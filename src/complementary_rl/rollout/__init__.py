"""Rollouts: groups of episodes played turn by turn, all active episodes in one batch."""
