"""Around a session: what it accepts, where its nodes run, how long a run takes, and its inner values."""
