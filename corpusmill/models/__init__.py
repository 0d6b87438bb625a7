"""Language models and embedders: contracts, back-ends, and the middlewares around them."""
