"""Strategies that share parameters or optimizer state over the ranks (docs/sharding.md)."""
