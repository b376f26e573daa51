"""Extras: each folder here is a feature that can be deleted, with its tests and its page of docs.

The kernel imports none of them. It finds them by `core.features`, and does without those that are
not here.
"""
