"""What administrators ask and change."""
