"""Arithmetic as pure functions: numpy arrays in, numpy arrays out; no model format is known here.

Conventions of every kernel:

- Images are NHWC (NDHWC in three dimensions); callers transpose.
- ``stride``, ``dilation``, ``window`` are ``(y, x)`` (``(z, y, x)``); ``padding`` is ``((top, bottom), (left, right))``.
- Weights: conv2d ``[O, H, W, I / groups]``, depthwise ``[H, W, I * M]`` with output channel ``i * M + m``,
  conv3d ``[D, H, W, I, O]``, matmul ``[K, N]``.
- float32 in, float32 out, unless the name or docstring says otherwise; quantised values are decoded and encoded by
  ``kernels.quantize`` outside the kernel. Integer kernels carry ``_int8`` in their name and are exact.
"""
