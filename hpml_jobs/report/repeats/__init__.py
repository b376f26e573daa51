"""Repeated runs: intervals, and strategies compared."""
