"""The sources of kernels in CUDA C++, and how nvcc compiles them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SOURCES = sorted((ROOT / "rose/kernels/cuda").glob("*.cu"))
"""Rose's own."""

ADD = Path(__file__).with_name("add.cu")
"""A small one for tests."""

NVCC = ("nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-cubin", "-std=c++17")
