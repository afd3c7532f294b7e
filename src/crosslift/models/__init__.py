"""Models by name, their parts and their outputs."""
