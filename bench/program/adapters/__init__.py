"""One module a rival, each with a class `Rival`; imported in the rival's own environment."""
