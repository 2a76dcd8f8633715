"""Tensor operations with gradients of their own, on the CPU and as Triton kernels."""
