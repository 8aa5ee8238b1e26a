"""The contract of a source as tests, one module per subject; `SourceContract` combines them."""
