"""The answer of a group: how much faster more GPUs are, what a wish asks for, and what it costs."""
