"""What a course asks and hands in."""
