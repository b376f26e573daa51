"""Strategies that share a model over the ranks: fsdp; zero1 the optimizer's state only."""
