"""Checks of the setup: before jobs are queued, and by a diagnostic job; your defaults."""
