"""`wharfinger doctor`: what a server lacks, what it costs a model, and what each host will show of it."""
