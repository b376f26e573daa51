"""Post-training quantization of a trained network, step by step, and torch's own beside it."""
