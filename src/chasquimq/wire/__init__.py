"""What the bytes and names look like. Pure: no I/O, no clock, no asyncio."""
