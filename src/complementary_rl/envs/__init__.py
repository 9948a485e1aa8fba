"""Environments: text in, text out. See `protocol` for what one is, `registry` for how one is found by name."""
