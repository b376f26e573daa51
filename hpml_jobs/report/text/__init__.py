"""Captions, notes, marks and number formats of the report."""
