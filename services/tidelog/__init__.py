"""Tidelog: a replicated, partitioned log whose every protocol step can be watched, broken and proved."""
