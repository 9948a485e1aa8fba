"""Experience: the bank, the extractor that writes it, credit for what was written, and the manager that runs them."""
