"""Gymnasium's FrozenLake as text."""
