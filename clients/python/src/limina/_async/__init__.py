"""The client for asyncio. The package `_sync` is made from this one by `unasync.py`, except `io.py`."""
