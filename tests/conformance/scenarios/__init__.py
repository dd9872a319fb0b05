"""What every client is asked to show, the same for all of them."""
