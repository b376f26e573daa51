"""Predictions of iterations that were not measured, each with a band and its skill."""
