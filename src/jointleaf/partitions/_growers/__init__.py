"""Partitioners that grow trees with some library, or with a grower of their own."""
