"""Questions that agents ask, answered by scripted callers through this project's tools and through those of others."""
