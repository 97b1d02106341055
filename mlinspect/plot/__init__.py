"""Pictures of a model: matplotlib functions that draw on ``ax=`` (by default in a new figure) and return ``Axes``."""
