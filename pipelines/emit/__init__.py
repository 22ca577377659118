"""How a kernel's expressions become ops on tiles; `primop_to_tile.py` puts the frame around them."""
