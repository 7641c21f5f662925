"""Who may: the right each request code needs, and whether somebody has it. Pure."""
