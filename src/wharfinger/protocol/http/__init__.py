"""What HTTP adds to the protocol: rules for requests and answers, headers, and which hosts and origins may call."""
