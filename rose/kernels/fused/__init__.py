"""Fused kernels in Triton, one module an op; imported only where they run."""
