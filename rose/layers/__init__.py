"""Layers take sizes, a quantization scheme and a parallel mapping."""
