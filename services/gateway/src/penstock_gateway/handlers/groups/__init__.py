"""Classic groups and consumer groups, and their committed offsets."""
