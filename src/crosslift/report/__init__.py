"""What a run leaves for people to read: the report page and the model card."""
