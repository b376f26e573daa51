"""Strategies that share parameters or optimizer state over the ranks (docs/keys.md)."""
