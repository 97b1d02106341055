"""Sort layers into an order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def topological(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Order positions so that every tensor is made before it is used; file order decides where both would do.

    Parameters
    ----------
    inputs, outputs : sequence of sequences of int
        Tensor ids that each layer reads and produces.

    Returns
    -------
    order, stuck : list of int
        Positions; ``stuck`` are those on or behind a cycle.

    Examples
    --------
    >>> topological([[1], [], [5]], [[2], [1], [6]])
    ([1, 0, 2], [])
    """
    producer = {tensor: position for position, made in enumerate(outputs) for tensor in made}
    if all(producer.get(tensor, -1) < position for position, taken in enumerate(inputs) for tensor in taken):
        return list(range(len(inputs))), []  # as most files have it
    waits = [0] * len(inputs)
    users: list[list[int]] = [[] for _ in inputs]
    for position, taken in enumerate(inputs):
        for source in {producer[tensor] for tensor in taken if tensor in producer}:
            waits[position] += 1
            users[source].append(position)
    ready = [position for position, count in enumerate(waits) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for user in users[position]:
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, user)
    return order, [position for position, count in enumerate(waits) if count > 0]
