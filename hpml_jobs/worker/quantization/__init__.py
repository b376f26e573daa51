"""Post-training quantization of a trained network, and torch's own for comparison."""
