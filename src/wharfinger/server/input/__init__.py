"""Requests for input from a client while its call is served: forms, URLs, samples and roots."""
