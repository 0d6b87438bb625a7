"""The methods, one package each, found through `registry`."""
