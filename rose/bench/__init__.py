"""Measurements: what they yield (`results`), how they are made, priced and drawn."""
