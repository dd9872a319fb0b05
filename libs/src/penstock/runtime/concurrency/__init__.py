"""Tools for tasks that share bytes, loads or wake-ups, or that leave no work behind. Imports nothing of Penstock."""
