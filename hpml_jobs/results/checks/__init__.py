"""Data-quality checks of every record: what is sound, what is doubtful, what is wrong, and why."""
