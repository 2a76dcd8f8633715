"""Tensor operations with custom gradients, on the CPU and as Triton kernels."""
