"""The page of a run: what happened, on one time line, and what is to be thought of it."""
