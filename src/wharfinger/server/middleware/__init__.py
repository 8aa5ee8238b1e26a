"""Middleware, which wraps the handlers of methods; and some middleware to use."""
