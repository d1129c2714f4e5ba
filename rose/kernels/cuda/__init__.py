"""Kernels in CUDA C++ for Hopper (sm_90a), compiled when they are first needed.

A kernel is a `.cu` file in this folder, `extern "C"`, with `Kernel` as its launcher. Files include
nothing but each other's `.cuh`, by name: NVRTC compiles without the headers of CUDA and of C++.
What varies comes as macros of integers, each with a default in the source (`#ifndef`), so that the
file also compiles alone.
"""
