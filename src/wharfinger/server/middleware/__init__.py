"""Middleware, which wraps the handlers of methods, and ready-made middleware."""
