"""Protocol events of a process: kept in a ring, told in sentences."""
