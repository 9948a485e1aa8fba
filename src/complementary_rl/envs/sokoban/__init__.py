"""Sokoban as text: small rooms, proven solvable, drawn from a seed."""
