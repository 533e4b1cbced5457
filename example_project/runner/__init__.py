"""What runs the example from a terminal: files arrive, a plan of runs is made and carried out, the result is shown."""
