"""Joins steps, late rewards and ends to trajectories; closes them; makes samples to learn from.

state      what is remembered of a trajectory, and its form in the table
policies   which rewards count
join       events → facts → summary and samples, independent of arrival order
due        which trajectories a tick must look at
processor  a record and the table → outputs and changes of the table
agent      the Faust shell
"""
