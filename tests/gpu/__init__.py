"""Measurements that need a GPU: what a card shows of the program, part by part."""
