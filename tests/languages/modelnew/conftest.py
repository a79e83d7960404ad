"""Extensions are built and called with a stand-in for the CUDA runtime."""

from stand_in_runtime import cuda, load, out_dir, runtime, runtime_path

__all__ = ["cuda", "load", "out_dir", "runtime", "runtime_path"]
