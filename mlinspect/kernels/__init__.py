"""Arithmetic as pure functions: numpy arrays in, numpy arrays out; no model format is known here.

Conventions of every kernel:

- Images are NHWC (NDHWC in three dimensions); callers transpose.
- ``stride``, ``dilation``, ``window`` are ``(y, x)`` (``(z, y, x)``); ``padding`` is ``((top, bottom), (left, right))``
  with ``(front, back)`` before it in three dimensions.
- Weights: conv2d ``[O, H, W, I / groups]``, depthwise ``[H, W, I * M]`` with output channel ``i * M + m``,
  conv3d ``[D, H, W, I, O]``, matmul ``[K, N]``.
- float32 in, float32 out, unless the name or docstring says otherwise; quantised values are decoded and encoded by
  ``kernels.quantize`` outside the kernel. Convolutions and products of integers give exact int32 sums; what is
  int8 arithmetic of a runtime carries ``_int8`` in its name.
"""
