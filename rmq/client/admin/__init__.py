"""Questions and changes of administrators."""
