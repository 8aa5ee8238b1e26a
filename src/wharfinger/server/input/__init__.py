"""Asking a client for input while its call is served: forms, URLs, samples and roots."""
