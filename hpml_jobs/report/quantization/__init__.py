"""Quantization of trained networks."""
