"""Schedules for each kind of target; `cost_model.py` chooses among them."""
