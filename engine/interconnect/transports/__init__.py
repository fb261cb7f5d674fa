"""One file for each way to move KV blocks. `catalogue` lists them."""
