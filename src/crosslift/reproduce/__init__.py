"""Every table and figure of the five papers: the same design at the scale that a machine allows, ours beside theirs.

A table is a short file in `entries/`, with no code of its own: its rows are settings of our methods, its columns are
languages or tasks, and it holds the paper's numbers. `plan` writes it out as runs of a sweep, so that a run which
several tables share is done once; `collect` reads the run folders; `comparison` and `claims` say what they mean.
"""
