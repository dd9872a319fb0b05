"""An object store in a folder: its verbs (`store`), uploads in `parts`, `cached_reads`, `names`, blocking `disk` work.

May import `store`, `errors` and `limits` of `penstock.objectstore`, and no other store. Start with `store`.
"""

from penstock.objectstore.file.store import FileStore, open_file_store

__all__ = ["open_file_store", "FileStore"]
