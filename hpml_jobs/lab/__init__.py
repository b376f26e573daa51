"""What a course hands in."""
