"""Checkpoint to checkpoint."""
