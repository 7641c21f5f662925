"""What several features use: topics and groups, the log to read and to write, state records, long polls."""
