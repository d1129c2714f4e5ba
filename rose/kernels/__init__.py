"""Kernels: one module an op. `reference.py` holds the plain torch truth of each."""
