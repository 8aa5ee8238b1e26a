"""Arguments: from a function or a schema given by hand to what is listed, decoded and told of faults."""
