"""The roles that run, and the decisions they take."""
