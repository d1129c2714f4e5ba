"""Decoders turn logits into accepted tokens: plain now, speculative ones to come."""
