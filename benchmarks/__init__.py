"""Speed beside a peer, in the same process run: `make bench`."""
