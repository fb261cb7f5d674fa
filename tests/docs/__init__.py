"""What the documents and the dashboard say is so."""
