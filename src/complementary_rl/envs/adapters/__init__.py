"""Environments of other conventions as ours, and ours as theirs."""
