"""The Python front end: kernels in, kernel IR out."""
