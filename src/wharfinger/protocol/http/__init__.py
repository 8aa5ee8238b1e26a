"""The parts of the protocol for HTTP: rules for requests and answers, headers, and allowed hosts and origins."""
