"""Middleware, which wraps the handlers of methods, and some ready-made middleware."""
