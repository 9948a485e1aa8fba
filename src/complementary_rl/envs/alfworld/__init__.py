"""ALFWorld: household tasks as text, by an engine of our own, on the official games or on generated ones."""
