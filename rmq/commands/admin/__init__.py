"""`rmq admin`: mqadmin's commands, a file for each subject."""
