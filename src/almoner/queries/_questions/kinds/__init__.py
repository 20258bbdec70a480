"""The kinds of questions: what a row adds to the answer, and how the answer is read. A module for each family."""
