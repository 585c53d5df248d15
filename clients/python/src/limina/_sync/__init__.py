"""The client for threads. It is made from the package `_async` by `unasync.py`, except `io.py`."""
