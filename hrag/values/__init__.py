"""What does everything speak of? Frozen values, errors, ids, filters, trees, deadlines, limits."""
