"""Tilewright: a tile compiler in Python."""
