"""What the operating system gives: files that are read and written safely, temporary folders, limits of time and memory."""
