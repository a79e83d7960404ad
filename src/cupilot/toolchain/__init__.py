"""nvcc and ptxas from pip wheels, a small ``torch/extension.h`` of our own, and host C++ builds.

Nothing is imported here: a worker process needs `cupilot.toolchain.abi` alone, and needs it light.
"""
