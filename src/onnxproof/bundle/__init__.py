"""The proof travels: the most telling cases with the reference's answers, replayed where there is no PyTorch."""
