"""Quantization schemes: how weights are stored and applied."""
