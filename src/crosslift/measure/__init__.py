"""How well a system does in each language, whether a difference is real, and how far a transfer may carry."""
