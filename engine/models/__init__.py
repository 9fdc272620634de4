"""One file a family: each tells its whole model."""
