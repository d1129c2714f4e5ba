"""Collectives of one group of ranks."""
