"""A run that shows the promise: load, a killed leader, and every acknowledged record read back and compared."""
