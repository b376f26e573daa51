"""Post-training quantization to int8, step by step (lab part B)."""
