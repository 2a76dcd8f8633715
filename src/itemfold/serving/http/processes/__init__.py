"""Worker processes, their supervisor, and the versions of the runs that they load."""
