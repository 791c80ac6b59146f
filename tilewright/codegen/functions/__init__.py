"""Elementary functions as straight-line arithmetic on registers, for every target.

Each function exists once for f32 and f64 lanes (narrower types compute in f32). `fast` (the op's
`afn` flag) allows the error bounds of the table in docs/emitter.md; without it results are within 2
ulp and right for inf, NaN and denormals. Coefficients are Chebyshev fits (mpmath.chebyfit with 50
digits) rounded to the type.
"""
