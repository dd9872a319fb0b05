"""Topics, configurations and client quotas: create, alter, describe and delete."""
