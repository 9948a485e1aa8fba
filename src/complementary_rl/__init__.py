"""Complementary RL: an actor and an experience extractor that learn from each other (arXiv 2603.17621)."""

__version__ = "0.1.0"
