"""One run: samplings, books, models, folders, questions, callbacks."""
