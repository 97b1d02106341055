"""MindSpore Lite's losses, gradients and optimisers."""
