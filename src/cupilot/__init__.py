"""cupilot: a PyTorch module in, a verified and faster CUDA kernel out."""

__version__ = "0.1.0"
