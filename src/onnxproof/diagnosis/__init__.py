"""From the evidence of a fault to the node, the cause, and a fix that was tried."""
