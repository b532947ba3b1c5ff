"""Fitting: components of a model, their blend on held-out rows, and recipes that name them."""
