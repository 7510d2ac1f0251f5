"""What is measured: one program per subject.

`PYTHON -m PROGRAM WORK SECONDS` does the work for about so long and prints one line of JSON. That is `{"figure": ...}`
in the unit of the row, or `{"version": ...}` for the work `version`. A program needs nothing but its library and
`loops`, because it runs in the library's own environment.

Calls are sequential, an integer there and an integer back. Casts come in floods of `loops.FLOOD`, each followed by one
call, which also checks that all have arrived.
"""
