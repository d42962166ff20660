"""What makes the parts of the site that are not written by hand."""
