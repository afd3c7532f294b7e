"""Run folders, the training loop, evaluation."""
