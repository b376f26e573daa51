"""The page of a study: one HTML file, and the same as Markdown with files of its pictures."""
