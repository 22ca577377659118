"""How a program enters: the tensor API, network blocks, model families and checkpoints."""
