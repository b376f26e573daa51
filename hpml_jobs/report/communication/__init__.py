"""Seconds, messages and bandwidth of communication."""
