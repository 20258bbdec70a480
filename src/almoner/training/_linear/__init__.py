"""Logistic regression by private gradient descent: the estimator, tables of people, and the folder of a model."""
