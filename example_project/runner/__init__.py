"""Runner of the example: files arrive, due runs are planned and executed, results are printed."""
