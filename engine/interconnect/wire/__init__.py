"""The control protocol of our own transports: framed, authenticated, bounded. Knows sockets and leases."""
