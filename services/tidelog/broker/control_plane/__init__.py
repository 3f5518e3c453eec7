"""How leadership and ISR travel between a broker and the rest: one port, one adapter a generation (design section 4)."""
