"""Output formats: screen, Markdown, LaTeX, CSV, JSON."""
