"""Training: a session of two engines and a bank, the actor's and the extractor's loops, their schedules, evaluation and checkpoints."""
