"""`baton run scenes`: a renderer and its scenes, each a process, double-buffered and one stage after the other.

plan      which scenes there are, where they stand and players walk, from a seed (pure)
program   the process of one scene
display   the process of the renderer, with a GPU that draws a small picture
records   what both have measured, as JSON
judge     what of it is wrong, and the figures of a run (pure)
run       the processes, and the command
page      the report: a table, and one HTML page
"""
