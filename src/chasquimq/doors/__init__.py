"""The methods of `Queue` and `SyncQueue` by subject; each is checked once and driven twice."""
