"""The formats of a report: screen, Markdown, LaTeX, CSV, JSON, DataFrames."""
