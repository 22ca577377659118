"""How the IR is changed: one file a pass, one conversion file between two levels."""
