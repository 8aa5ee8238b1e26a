"""URI templates (RFC 6570): parsing, matching, and finding the template that a URI belongs to."""
