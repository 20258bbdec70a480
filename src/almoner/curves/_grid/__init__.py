"""Laws of privacy losses on grids: the engine of every certified bound."""
