"""Objectives: pure functions from rewards, credits and log-probs to what an engine trains on. See docs/objectives.md."""
