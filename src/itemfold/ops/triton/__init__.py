"""Triton kernels; each has a plain form on the CPU that it is tested against."""
