"""Our own code on a virtual clock and a seeded scheduler: simulated store, database, log and provider.

What runs is the product: the workers, the verbs and bridges of booking, reservation, ticketing and payment, and the Lua
scripts themselves. What is simulated are the servers they talk to. `python -m tests.simulation --seed N` repeats a
history; docs/explanation/guarantees.md says what is simulated and what is not.
"""
