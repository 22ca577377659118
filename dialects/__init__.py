"""What the IR is: operations, attributes, verifiers and builders; nothing here transforms it."""
