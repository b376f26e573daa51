"""Frozen values and pure functions: standard library and msgspec only."""
