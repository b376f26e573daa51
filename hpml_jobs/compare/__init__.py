"""Two studies cell by cell, and stored references."""
