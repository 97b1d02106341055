"""Pictures of a model: matplotlib functions that take ``ax=`` and return ``Axes``."""
