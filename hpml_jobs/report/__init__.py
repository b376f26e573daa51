"""Merge the records of a study into tables and pictures; nothing here submits or measures."""
