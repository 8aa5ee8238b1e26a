"""Asking a client while its call is served: the questions, their forms, and how the answers reach the handler."""
