"""Fresh faults from a seed: one change in the file of a healthy model, with its guilty nodes and the causes that are true of it."""
