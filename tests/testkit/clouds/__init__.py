"""Servers with the protocols of clouds, and more servers of S3. `fetched` has their programs, for `make test-stores`.

They come from Go's proxy and from npm, into the folder of the user's caches.
"""
