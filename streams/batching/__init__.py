"""Decides which samples are trained and puts them together to micro-batches.

tokens     steps of a branch → sequences in which every sampled token is trained once
memory     what is remembered of a trajectory: branches, revisions, who trains which step
admission  sample, steps, rules → candidate or refusal with a reason
packing    which waiting candidates make the next micro-batch
desk       the samples that wait: in, held, out
reading    steps by their places, newest versions, sent batches
lane       records in, batches and decisions out, in a safe order
agent      the Faust shell
"""
