"""The clauses of a source's contract as tests, a theme per module; `SourceContract` is all of them."""
