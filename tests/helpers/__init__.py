"""Builders shared by tests; imported as `helpers.<module>`."""
