"""From messages to token ids and back: rendered once, token in and token out afterwards."""
