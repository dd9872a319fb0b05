"""Topics, configurations, client quotas, users and access control lists: create, alter, describe and delete."""
