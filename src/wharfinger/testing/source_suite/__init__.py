"""The contract of a source as tests, one theme per module; `SourceContract` joins them."""
