"""What a run needs before it is started: shapes (which model) → demand (bytes of each process) → placement (on GPUs) → plan (verdict)."""
