"""Widgets for Jupyter: forms whose traits hold everything, so that all they do can be done and tested from code."""
