"""Two studies cell by cell, and references."""
