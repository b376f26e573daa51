"""The formats of a report: screen, Markdown, CSV, JSON, DataFrames."""
