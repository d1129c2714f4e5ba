"""Scheduling and KV block management on plain integers: no torch, no numpy."""
