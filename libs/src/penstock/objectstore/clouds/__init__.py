"""Object stores in Google Cloud Storage and Azure Blob Storage; the only room that imports obstore.

Start with `opening`. `store` has all verbs of both clouds, except that each cloud has its own uploads in parts: `parts`
has their common part and those of Google, `blocks` has those of Azure.
"""

from penstock.objectstore.clouds.opening import open_azure_store, open_gcs_store

__all__ = ["open_gcs_store", "open_azure_store"]
