"""Evidence: comparisons over seeds, reproducible by one command each."""
