"""The commands: options in, text out."""
