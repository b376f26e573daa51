"""The lab of a course: its questions, and what is handed in."""
