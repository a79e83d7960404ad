"""PyTorch's own time for a task: the kernels that eager mode and ``torch.compile`` launch, and how long they take."""
