"""Numbers about a model: what its constants look like, what it costs, what is wrong with it."""
