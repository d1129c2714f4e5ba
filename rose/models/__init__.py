"""Models and the weights that fill them."""
